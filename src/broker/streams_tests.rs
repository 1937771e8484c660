//! Streams come and go in a broker that runs, seen by clients.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use super::Broker;
use super::error::BrokerError;
use crate::batches::Directory;
use crate::client::{Address, ClientError, Options, Publisher, Reply, Subscription};
use crate::config::{Config, StreamConfig};

const PATIENCE: Duration = Duration::from_secs(60);

fn declared(name: &str) -> StreamConfig {
    let schema = json!({"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]});
    StreamConfig::new(name, Some(schema))
}

struct Running {
    broker: Option<Broker>,
    clients: tokio::runtime::Runtime,
    _root: tempfile::TempDir,
}

impl Running {
    fn start() -> Self {
        let root = tempfile::tempdir().expect("a directory");
        let config = Config {
            root: root.path().to_owned(),
            listen: "127.0.0.1:0".parse().expect("an address"),
            ..Config::default()
        };
        let broker = Some(Broker::start(&config).expect("a broker"));
        let clients = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        Self { broker, clients, _root: root }
    }

    fn streams(&self) -> &super::Streams {
        self.broker.as_ref().expect("it runs").streams()
    }

    fn address(&self, name: &str) -> Address {
        let address = self.broker.as_ref().expect("it runs").address();
        Address::parse(&format!("ws://{address}/{name}")).expect("an address")
    }

    fn publish(&self, name: &str, id: i64) -> i64 {
        let address = self.address(name);
        self.clients.block_on(async {
            let mut publisher = Publisher::open(&address, &Options::default(), None).await.expect("a publisher");
            publisher.send(json!({ "id": id }).to_string());
            let reply = publisher.reply().await.expect("a reply");
            publisher.close().await;
            match reply {
                Reply::Ok { offsets, .. } => offsets[0].expect("an offset") as i64,
                other => panic!("{other:?}"),
            }
        })
    }

    fn refused(&self, name: &str) -> u16 {
        let address = self.address(name);
        let opened = self.clients.block_on(Subscription::open(&address, &Options::default(), None, None));
        match opened.err().expect("it is refused") {
            ClientError::Closed(closed) => closed.code,
            other => panic!("{other}"),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(broker) = self.broker.take() {
            broker.stop().expect("it stops in order");
        }
    }
}

#[test]
fn a_stream_starts_stops_and_goes_on_where_it_was() {
    let running = Running::start();
    assert_eq!(running.refused("late"), 4404);
    let first = running.streams().start(&declared("late")).expect("started");
    assert_eq!(running.publish("late", 1), 1);
    assert!(matches!(running.streams().start(&declared("late")), Err(BrokerError::Served { .. })));

    let address = running.address("late");
    let ended = running.clients.block_on(async {
        let options = Options::default();
        let mut subscription = Subscription::open(&address, &options, Some(1), None).await.expect("a subscription");
        assert_eq!(subscription.next().await.expect("the row").json(), r#"{"id":1}"#);
        let streams = Arc::clone(running.broker.as_ref().expect("it runs").streams());
        let stop = tokio::task::spawn_blocking(move || streams.stop("late", PATIENCE));
        let ended = subscription.next().await.expect_err("the end");
        stop.await.expect("no panic").expect("stopped");
        ended
    });
    assert!(matches!(ended, ClientError::Closed(closed) if closed.code == 1001));
    assert_eq!(running.refused("late"), 4404);
    assert!(matches!(running.streams().stop("late", PATIENCE), Err(BrokerError::NotServed { .. })));

    let again = running.streams().start(&declared("late")).expect("started again");
    assert_eq!(first.stream_id, again.stream_id);
    assert_eq!(running.publish("late", 2), 2);
    running.streams().start(&declared("other")).expect("another");
    assert_eq!(running.publish("other", 1), 1);
    assert_eq!(running.publish("late", 3), 3);
}

#[test]
fn a_declaration_that_differs_from_the_log_is_refused_and_changes_nothing() {
    let running = Running::start();
    running.streams().start(&declared("one")).expect("started");
    running.streams().stop("one", PATIENCE).expect("stopped");
    let other = StreamConfig {
        schema: Some(json!({"type": "object", "properties": {"x": {"type": "string"}}, "required": ["x"]})),
        ..declared("one")
    };
    assert!(matches!(running.streams().start(&other), Err(BrokerError::Journal(_))));
    assert_eq!(running.refused("one"), 4404);
    running.streams().start(&declared("one")).expect("as it was");
    assert_eq!(running.publish("one", 1), 1);
}

#[test]
fn what_a_deleted_stream_has_published_elsewhere_goes_and_nothing_else() {
    let running = Running::start();
    let elsewhere = tempfile::tempdir().expect("a directory");
    let prefix = format!("file://{}", elsewhere.path().display());
    let declared = |name: &str| StreamConfig { published: Some(prefix.clone()), ..declared(name) };
    let there = |name: &str| elsewhere.path().join(name).join(name).join("metadata/version-hint.text").exists();
    for name in ["x", "x-v2", "x2"] {
        running.streams().start(&declared(name)).expect("started");
        running.publish(name, 1);
        running.streams().lake().flush(name).expect("published");
        assert!(there(name), "{name}");
    }
    // Somebody else's file, in the same directory.
    let other = elsewhere.path().join("x/other.txt");
    std::fs::write(&other, "mine").expect("written");
    let served = running.streams().find("x").expect("served");
    let streams: &dyn Directory = running.streams();
    let deleted = streams.delete(&served).expect("deleted");
    assert!(there("x"), "its table goes in the background");
    let again = running.streams().start(&declared("x"));
    assert!(matches!(again, Err(BrokerError::Deleting { .. })), "its table is still there");
    for _ in 0..2 {
        streams.clear(&deleted).expect("cleared");
        assert!(!elsewhere.path().join("x/x").exists() && there("x-v2") && there("x2") && other.exists());
    }
    let stream_id = deleted.stream_id.clone();
    running.streams().errand(move |office| office.note_deleted(&stream_id, 1)).expect("asked").expect("noted");
    running.streams().start(&declared("x")).expect("the place is free");
    assert_eq!(running.publish("x", 1), 1);
    // Whoever clears it again, late, leaves the new one alone.
    streams.clear(&deleted).expect("cleared");
    running.streams().lake().flush("x").expect("published");
    assert!(there("x"));
}
