//! What the demo says once it runs: where the page is, and lines to copy.

use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr};

use super::options::DemoOptions;
use super::root::Root;
use super::streams::{HOST, TRADES, table as table_of};

/// The text, for a broker that listens on `address`.
pub fn banner(options: &DemoOptions, address: SocketAddr, root: &Root) -> String {
    let at = reachable(address);
    let rate = options.rate_rows_per_s;
    let kept = if root.is_temporary() { "removed at the end" } else { "kept" };
    let filter = r#"{"symbol":["BTC-USD","ETH-USD"]}"#;
    let python = format!(
        "import asyncio, streamcast\nasync def main():\n    async with streamcast.connect(\"ws://{at}/{TRADES}\", offset=0) as rows:\n        \
         async for offset, ts, row in rows: print(offset, row)\nasyncio.run(main())"
    );
    let table = std::path::absolute(root.path()).unwrap_or_else(|_| root.path().to_owned());
    let sql = format!(
        "INSTALL iceberg; LOAD iceberg; SELECT count(*), max(litelink_offset) FROM iceberg_scan('{}')",
        table_of(&table, TRADES).display().to_string().replace('\'', "''")
    );
    let duckdb = format!("python3 - <<'END'    # pip install duckdb\nimport duckdb\nprint(duckdb.sql(\"{sql}\"))\nEND");
    let mut text = String::new();
    let _ = write!(
        text,
        "\n  streamcast-uring demo\n\n  \
         Console   http://{at}/\n  \
         Streams   {TRADES}: a made-up market, about {rate} rows/s\n            \
         {HOST}: this machine, 4 rows/s\n  \
         Data      {} ({kept})\n\n  \
         Follow the trades, from the first one on:\n\n\
         wscat -c 'ws://{at}/{TRADES}?offset=0'\n\n\
         streamcast-uring subscribe 'ws://{at}/{TRADES}' --offset earliest --where '{filter}'\n\n\
         python3 - <<'END'    # pip install streamcast\n{python}\nEND\n\n  \
         Count them in their Iceberg table, which trails by some ten seconds:\n\n\
         {duckdb}\n\n  \
         Ctrl-C ends it.\n\n",
        root.path().display(),
    );
    text
}

/// An address that a client on this machine can use, also for a listener on all addresses.
pub fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(std::net::Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(std::net::Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_names_an_address_that_can_be_reached() {
        let root = Root::new(None).expect("a folder");
        let text = banner(&DemoOptions::default(), SocketAddr::from(([0, 0, 0, 0], 8_765)), &root);
        assert!(!text.contains("0.0.0.0"));
        for line in [
            "Console   http://127.0.0.1:8765/",
            "wscat -c 'ws://127.0.0.1:8765/trades?offset=0'",
            "    async with streamcast.connect(\"ws://127.0.0.1:8765/trades\", offset=0) as rows:",
        ] {
            assert!(text.contains(line), "no {line} in {text}");
        }
        let table = root.path().join("trades/trades/published/trades");
        assert!(text.contains(&format!("iceberg_scan('{}')", table.display())), "no table in {text}");
        assert_eq!(reachable(SocketAddr::from(([0; 16], 1))).to_string(), "[::1]:1");
    }
}
