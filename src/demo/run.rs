//! The demo as a whole: a folder, a broker in it, and the two feeds.

use std::io::Write;
use std::net::SocketAddr;
use std::time::{SystemTime, UNIX_EPOCH};

use tokio::runtime::Handle;

use super::banner::{banner, reachable};
use super::feed::{FeedClock, publish};
use super::host::HostSource;
use super::market::Market;
use super::options::{DemoOptions, MAX_RATE_ROWS_PER_S, MIN_RATE_ROWS_PER_S};
use super::root::Root;
use super::streams::{HOST, TRADES, config};
use crate::client::{Address, ClientError};
use crate::config::Config;

/// A broker that began to serve.
pub struct Serving {
    /// Where it listens.
    pub address: SocketAddr,
    /// The runtime of its background cores: the feeds run there, and end with it.
    pub runtime: Handle,
}

/// Why a demo did not run, or ended; `E` is the broker's own error.
#[derive(Debug, thiserror::Error)]
pub enum DemoError<E: std::error::Error + 'static> {
    /// The rate is out of bounds.
    #[error("the rate {0} is not between {MIN_RATE_ROWS_PER_S} and {MAX_RATE_ROWS_PER_S} rows a second")]
    Rate(f64),
    /// There is no temporary folder to be had.
    #[error("no temporary folder: {0}; name one with --root")]
    Root(#[source] std::io::Error),
    /// The broker's error.
    #[error(transparent)]
    Broker(E),
}

/// Runs the demo until the broker ends. `serve` runs a broker: it calls its second argument once it listens, and returns
/// when it has stopped.
///
/// # Errors
/// If the options make no sense, or the broker's own.
pub fn run<E, S>(options: &DemoOptions, serve: S) -> Result<(), DemoError<E>>
where
    E: std::error::Error + 'static,
    S: FnOnce(Config, Box<dyn FnOnce(Serving) + Send>) -> Result<(), E>,
{
    if !(MIN_RATE_ROWS_PER_S..=MAX_RATE_ROWS_PER_S).contains(&options.rate_rows_per_s) {
        return Err(DemoError::Rate(options.rate_rows_per_s));
    }
    let root = Root::new(options.root.clone()).map_err(DemoError::Root)?;
    let config = config(options, root.path().to_owned());
    let (told, shown) = (options.clone(), banner_for(options, &root));
    let ready = move |serving: Serving| {
        // Nobody may be reading; the demo runs all the same.
        let _ = std::io::stdout().lock().write_all(shown(serving.address).as_bytes());
        if let Err(error) = start_feeds(&told, &serving) {
            tracing::error!(%error, "the demo's feeds did not start");
        }
    };
    serve(config, Box::new(ready)).map_err(DemoError::Broker)
}

/// The banner, still without the address.
fn banner_for(options: &DemoOptions, root: &Root) -> impl FnOnce(SocketAddr) -> String + Send + 'static {
    const PLACE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1)), 9);
    let text = banner(options, PLACE, root);
    move |address| text.replace(&PLACE.to_string(), &reachable(address).to_string())
}

fn start_feeds(options: &DemoOptions, serving: &Serving) -> Result<(), ClientError> {
    let address = |stream: &str| Address::parse(&format!("ws://{}/{stream}", reachable(serving.address)));
    let clock = FeedClock::start();
    let seed = options
        .seed
        .unwrap_or_else(|| SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64));
    let market = Market::new(seed, clock.now_us(), options.rate_rows_per_s);
    serving.runtime.spawn(publish(address(TRADES)?, market, clock));
    serving.runtime.spawn(publish(address(HOST)?, HostSource::new(clock.now_us()), clock));
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("no broker today")]
    struct NoBroker;

    #[test]
    fn a_rate_out_of_bounds_never_reaches_a_broker() {
        for rate_rows_per_s in [0.0, 0.99, 100_001.0, -1.0, f64::NAN, f64::INFINITY] {
            let options = DemoOptions { rate_rows_per_s, ..DemoOptions::default() };
            let outcome = run(&options, |_, _| -> Result<(), NoBroker> { panic!("served") });
            assert!(matches!(outcome, Err(DemoError::Rate(_))), "{rate_rows_per_s}");
        }
    }

    #[test]
    fn its_folder_is_there_for_the_broker_and_gone_after_it_also_when_it_fails() {
        for fails in [false, true] {
            let mut seen = PathBuf::new();
            let outcome = run(&DemoOptions::default(), |config, _| {
                assert!(config.root.is_dir());
                seen = config.root;
                if fails { Err(NoBroker) } else { Ok(()) }
            });
            assert_eq!(matches!(outcome, Err(DemoError::Broker(NoBroker))), fails);
            assert!(!seen.as_os_str().is_empty() && !seen.exists());
        }
    }
}
