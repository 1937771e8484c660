//! The HTTP side over real sockets, with a stand-in for the shard that hands connections over.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use super::{AdoptRefused, HttpHandle, HttpLimits, HttpSettings, UpgradeHead, start};
use crate::telemetry::{StreamCounters, Telemetry};

type Upgraded = (TcpStream, UpgradeHead, Vec<u8>);

struct Rig {
    address: SocketAddr,
    handle: HttpHandle,
    upgraded: mpsc::Receiver<Upgraded>,
    refusals: mpsc::Receiver<AdoptRefused>,
}

/// A listener whose connections are handed over after up to `read_first` bytes were read.
fn rig(read_first: usize, change: impl FnOnce(&mut HttpSettings)) -> Rig {
    let telemetry = Arc::new(Telemetry::new(2));
    telemetry.add_stream(Arc::new(StreamCounters::new("r", true, Some(1))));
    let (upgrades, upgraded) = mpsc::channel();
    let mut settings = HttpSettings::new(Arc::new(move |socket, head, leftover, _| {
        let _ = upgrades.send((socket, head, leftover));
    }));
    change(&mut settings);
    let handle = start(settings, telemetry, || {}).expect("started");
    let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
    let address = listener.local_addr().expect("an address");
    let (refused, refusals) = mpsc::channel();
    let adopting = handle.clone();
    std::thread::spawn(move || {
        for socket in listener.incoming() {
            let mut socket = socket.expect("accepted");
            let mut first = vec![0; read_first];
            let count = if read_first > 0 { socket.read(&mut first).unwrap_or(0) } else { 0 };
            first.truncate(count);
            socket.set_nonblocking(true).expect("non-blocking");
            if let Err(error) = adopting.adopt(socket, first) {
                let _ = refused.send(error);
            }
        }
    });
    Rig { address, handle, upgraded, refusals }
}

fn connect(rig: &Rig) -> TcpStream {
    let socket = TcpStream::connect(rig.address).expect("connected");
    socket.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout");
    socket
}

/// One answer: its head in lower case, and its body.
fn answer(socket: &mut TcpStream) -> (String, String) {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        match socket.read_exact(&mut byte) {
            Ok(()) => head.push(byte[0]),
            Err(end) if end.kind() == std::io::ErrorKind::UnexpectedEof => {
                return (String::from_utf8_lossy(&head).into_owned(), String::new());
            }
            Err(error) => panic!("no byte: {error}"),
        }
    }
    let head = String::from_utf8(head).expect("ascii").to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap_or("0");
    let mut body = vec![0; length.parse().expect("a length")];
    socket.read_exact(&mut body).expect("a body");
    (head, String::from_utf8(body).expect("text"))
}

fn ask(rig: &Rig, request: &str) -> (String, String) {
    let mut socket = connect(rig);
    socket.write_all(request.as_bytes()).expect("sent");
    answer(&mut socket)
}

fn get(rig: &Rig, target: &str) -> (String, String) {
    ask(rig, &format!("GET {target} HTTP/1.1\r\nHost: x\r\n\r\n"))
}

fn status(answer: &(String, String)) -> u16 {
    answer.0.get(9..12).and_then(|digits| digits.parse().ok()).unwrap_or(0)
}

fn field<'a>(answer: &'a (String, String), name: &str) -> Option<&'a str> {
    answer.0.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
}

const UPGRADE: &str = "GET /a%20b?offset=0 HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\nAuthorization: Basic eA==\r\n\r\n";

#[test]
fn every_route_answers_wherever_the_shard_stopped_reading() {
    for read_first in [0, 1, 9, 4_096] {
        let rig = rig(read_first, |_| {});
        let stats = get(&rig, "/stats?anything=1");
        assert_eq!((status(&stats), field(&stats, "content-type")), (200, Some("application/json")));
        assert!(stats.1.starts_with("{\"served_at\":") && stats.1.contains("\"name\":\"r\""), "{}", stats.1);
        let metrics = get(&rig, "/metrics");
        assert_eq!(status(&metrics), 200);
        assert!(metrics.1.contains("streamcast_stream_end_offset{stream=\"r\"} 1"), "{}", metrics.1);
        assert!(metrics.1.contains("streamcast_http_answers_total{route=\"stats\",status=\"200\"} 1"));
        assert_eq!(get(&rig, "/healthz").1, r#"{"status":"ok"}"#);
        assert_eq!(get(&rig, "/console/history").1, "[]");
        let page = get(&rig, "/");
        assert_eq!((status(&page), field(&page, "content-type")), (200, Some("text/html; charset=utf-8")));
        let unknown = get(&rig, "/r");
        assert_eq!((status(&unknown), &*unknown.1), (404, r#"{"detail":"Not Found"}"#));
    }
}

#[test]
fn other_methods_are_told_what_is_allowed() {
    let rig = rig(0, |_| {});
    for (method, path, allow) in [
        ("POST", "/stats", "get"),
        ("PUT", "/stats", "get"),
        ("DELETE", "/stats", "get"),
        ("HEAD", "/stats", "get"),
        ("POST", "/metrics", "get, head"),
        ("DELETE", "/", "get, head"),
    ] {
        let mut socket = connect(&rig);
        write!(socket, "{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            .expect("sent");
        let mut all = String::new();
        socket.read_to_string(&mut all).expect("an answer");
        let found = (all.to_ascii_lowercase(), String::new());
        assert_eq!((status(&found), field(&found, "allow")), (405, Some(allow)), "{method} {path}");
        assert_eq!(method == "HEAD", all.ends_with("\r\n\r\n"), "{method} {path}: {all}");
    }
}

#[test]
fn the_statistics_move_with_their_path_and_say_so_when_they_are_off() {
    let moved = rig(0, |settings| settings.stats_path = Some("/s/{t}".to_owned()));
    assert_eq!(status(&get(&moved, "/s/{t}")), 200);
    assert_eq!(get(&moved, "/stats").1, r#"{"detail":"Not Found"}"#);
    let off = rig(0, |settings| settings.stats_path = None);
    let answer = get(&off, "/stats");
    assert_eq!(status(&answer), 404);
    assert_eq!(
        answer.1,
        r#"{"error":{"code":"not_found","message":"not found","retryable":false,"operation_id":null}}"#
    );
}

#[test]
fn readiness_follows_the_broker() {
    let rig = rig(0, |_| {});
    assert_eq!(status(&get(&rig, "/readyz")), 503);
    rig.handle.set_ready();
    assert_eq!(get(&rig, "/readyz").1, r#"{"status":"ready"}"#);
    rig.handle.set_draining();
    let draining = get(&rig, "/readyz");
    assert_eq!((status(&draining), &*draining.1), (503, r#"{"status":"draining"}"#));
}

#[test]
fn a_websocket_after_other_requests_goes_back_with_all_its_bytes() {
    for read_first in [0, 30] {
        let rig = rig(read_first, |_| {});
        let mut socket = connect(&rig);
        for _ in 0..2 {
            socket.write_all(b"GET /stats HTTP/1.1\r\nHost: x\r\n\r\n").expect("sent");
            assert_eq!(status(&answer(&mut socket)), 200);
        }
        socket.write_all(format!("{UPGRADE}frames").as_bytes()).expect("sent");
        let switched = answer(&mut socket);
        assert_eq!(status(&switched), 101);
        assert_eq!(field(&switched, "sec-websocket-accept"), Some("s3pplmbitxaq9kygzzhzrbk+xoo="));
        let (mut server, head, mut got) = rig.upgraded.recv_timeout(Duration::from_secs(60)).expect("handed back");
        assert_eq!(head.target, "/a%20b?offset=0");
        assert!(head.headers.contains(&("authorization".to_owned(), "Basic eA==".to_owned())));
        socket.write_all(b" and more").expect("sent");
        socket.shutdown(Shutdown::Write).expect("shut");
        server.set_nonblocking(false).expect("blocking");
        server.read_to_end(&mut got).expect("the rest");
        assert_eq!(got, b"frames and more");
        server.write_all(b"hello").expect("sent");
        drop(server);
        let mut heard = String::new();
        socket.read_to_string(&mut heard).expect("heard");
        assert_eq!(heard, "hello");
        assert_eq!(rig.handle.free_connections(), HttpLimits::default().max_http_connections);
    }
}

#[test]
fn a_bad_websocket_request_is_refused_and_the_server_lives() {
    let rig = rig(0, |_| {});
    for (from, to, expected) in [
        ("dGhlIHNhbXBsZSBub25jZQ==", "AA==", 400),
        ("Version: 13", "Version: 8", 426),
        ("GET", "POST", 405),
        ("HTTP/1.1", "HTTP/1.0", 400),
        ("websocket", "h2c", 404),
        ("Host: x\r\n", "", 400),
        ("Host: x", "Host: x\r\nHost: y", 400),
    ] {
        assert_eq!(status(&ask(&rig, &UPGRADE.replacen(from, to, 1))), expected, "{to}");
    }
    assert_eq!(status(&ask(&rig, "GET /stats HTTP/1.1\r\n\r\n")), 400);
    assert_eq!(status(&ask(&rig, "GET /stats HTTP/1.0\r\n\r\n")), 200);
    assert_eq!(status(&get(&rig, "/stats")), 200);
}

#[test]
fn bodies_in_transfer_codings_that_are_not_known_are_refused() {
    let rig = rig(0, |_| {});
    for (codings, expected) in [
        ("Transfer-Encoding: chunked", 405),
        ("Transfer-Encoding:  Chunked ", 405),
        ("Transfer-Encoding: gzip, chunked", 501),
        ("Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked", 501),
        ("Transfer-Encoding: chunked, chunked", 501),
        ("Transfer-Encoding: chunked, gzip", 400),
    ] {
        let request = format!("POST /stats HTTP/1.1\r\nHost: x\r\n{codings}\r\n\r\n0\r\n\r\n");
        assert_eq!(status(&ask(&rig, &request)), expected, "{codings}");
    }
}

#[test]
fn connections_over_the_limit_are_told_and_closed() {
    let rig = rig(0, |settings| settings.limits.max_http_connections = 2);
    let held: Vec<TcpStream> = (0..2).map(|_| connect(&rig)).collect();
    let mut third = connect(&rig);
    assert_eq!(status(&answer(&mut third)), 503);
    let refused = rig.refusals.recv_timeout(Duration::from_secs(60)).expect("refused");
    assert_eq!(refused, AdoptRefused::Full { max_http_connections: 2 });
    drop(held);
    let deadline = Instant::now() + Duration::from_secs(60);
    while status(&get(&rig, "/healthz")) != 200 {
        assert!(Instant::now() < deadline, "the permits did not come back");
    }
}

#[test]
fn heads_and_bodies_have_limits() {
    let rig = rig(0, |settings| {
        settings.limits.max_head_bytes = 8_192;
        settings.limits.max_body_bytes = 100;
        settings.limits.max_header_count = 10;
    });
    let long = format!("GET /stats HTTP/1.1\r\nHost: x\r\nA: {}\r\n\r\n", "b".repeat(20_000));
    let many = format!("GET /stats HTTP/1.1\r\nHost: x\r\n{}\r\n", "A: b\r\n".repeat(20));
    let body = format!("POST /stats HTTP/1.1\r\nHost: x\r\nContent-Length: 101\r\n\r\n{}", "x".repeat(101));
    for (request, expected) in [(long, 431), (many, 431), (body, 413)] {
        assert_eq!(status(&ask(&rig, &request)), expected);
    }
}

#[test]
fn an_answer_before_the_body_is_read_leaves_the_connection_in_order() {
    // What comes late comes however busy the machine is.
    let patient = |settings: &mut HttpSettings| {
        settings.limits.max_body_bytes = 100;
        settings.limits.rest_timeout = Duration::from_secs(60);
        settings.limits.linger = Duration::from_secs(60);
    };
    let waits = rig(0, patient);
    let healthy = |socket: &mut TcpStream| {
        socket.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n").expect("sent");
        status(&answer(socket))
    };
    // A body that comes a while after its head.
    let mut socket = connect(&waits);
    for (target, length, expected) in
        [("stats", 5_000, 413), ("stats", 50, 405), ("nowhere", 50, 404), ("control/v1/streams", 50, 405)]
    {
        let head = format!("POST /{target} HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n");
        socket.write_all(head.as_bytes()).expect("sent");
        std::thread::sleep(Duration::from_millis(50));
        socket.write_all(" ".repeat(length).as_bytes()).expect("the connection is still open");
        let refused = answer(&mut socket);
        assert_eq!((status(&refused), field(&refused, "connection")), (expected, None), "{target}");
        assert_eq!(healthy(&mut socket), 200, "{target}");
    }
    // One that is too long to be read away: the answer gets through and says that it is the last one.
    for head in ["Content-Length: 2000000", "Transfer-Encoding: chunked"] {
        let mut socket = connect(&waits);
        socket.write_all(format!("POST /stats HTTP/1.1\r\nHost: x\r\n{head}\r\n\r\n").as_bytes()).expect("sent");
        for _ in 0..20 {
            socket.write_all(format!("186a0\r\n{}\r\n", "x".repeat(99_991)).as_bytes()).expect("still taken");
        }
        let refused = answer(&mut socket);
        assert_eq!(field(&refused, "connection"), Some("close"), "{head}");
        assert!([405, 413].contains(&status(&refused)), "{head}");
        assert_eq!(socket.read_to_end(&mut Vec::new()).expect("the end, and no reset"), 0, "{head}");
    }
    // One that never comes, and one that waits to be asked for.
    let rig = rig(0, |settings| settings.limits.max_body_bytes = 100);
    for expect in ["", "Expect: 100-continue\r\n"] {
        let mut socket = connect(&rig);
        let head = format!("POST /stats HTTP/1.1\r\nHost: x\r\nContent-Length: 50\r\n{expect}\r\n");
        socket.write_all(head.as_bytes()).expect("sent");
        let refused = answer(&mut socket);
        assert_eq!((status(&refused), field(&refused, "connection")), (405, Some("close")), "{expect}");
        assert_eq!(socket.read_to_end(&mut Vec::new()).expect("the end"), 0);
    }
}

#[test]
fn whoever_stops_in_the_middle_is_cut_off() {
    let short = Duration::from_secs(1);
    // The time of a head is its own, whatever the silence before it might have been.
    let heads = rig(0, |settings| {
        settings.limits.head_timeout = short;
        settings.limits.idle_timeout = Duration::from_secs(600);
    });
    let idle = rig(0, |settings| settings.limits.idle_timeout = short);
    for (rig, sent, answered) in [
        (&heads, "GET /stats HT", false),
        (&idle, "", false),
        (&idle, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n", true),
    ] {
        let mut socket = connect(rig);
        socket.write_all(sent.as_bytes()).expect("sent");
        let mut all = String::new();
        socket.read_to_string(&mut all).expect("cut off before the test's own timeout");
        assert_eq!(all.starts_with("HTTP/1.1 200"), answered, "{sent:?} got {all:?}");
    }
}

#[test]
fn a_stop_ends_idle_connections_at_once_and_stuck_ones_at_the_deadline() {
    let rig = rig(0, |_| {});
    let mut idle = connect(&rig);
    idle.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n").expect("sent");
    assert_eq!(status(&answer(&mut idle)), 200);
    let mut stuck = connect(&rig);
    stuck.write_all(b"GET /heal").expect("sent");
    while rig.handle.free_connections() > HttpLimits::default().max_http_connections - 2 {
        std::thread::yield_now();
    }
    let began = Instant::now();
    rig.handle.stop(Duration::from_millis(300));
    assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
    for socket in [&mut idle, &mut stuck] {
        let mut rest = Vec::new();
        let _ = socket.read_to_end(&mut rest);
        assert!(rest.is_empty());
    }
    rig.handle.stop(Duration::from_secs(1));
}

#[test]
fn the_sampler_publishes_rows_that_the_history_keeps() {
    let rig = rig(0, |_| {});
    let (rows, published) = mpsc::channel();
    rig.handle.start_sampler(move |row| {
        let _ = rows.send(row);
    });
    let row = published.recv_timeout(Duration::from_secs(60)).expect("a row");
    let row: serde_json::Value = serde_json::from_slice(&row).expect("json");
    assert_eq!(row["streams"][0]["name"], "r");
    let history: serde_json::Value = serde_json::from_str(&get(&rig, "/console/history").1).expect("json");
    assert_eq!(history[0], row);
}

#[test]
fn the_control_api_can_have_an_address_of_its_own() {
    let rig = rig(0, |settings| settings.control_apart = true);
    let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
    let control = listener.local_addr().expect("an address");
    rig.handle.listen_for_control(listener).expect("accepting");
    for path in ["/control/v1", "/openapi.json"] {
        assert_eq!(status(&get(&rig, path)), 404, "{path}");
        let mut socket = TcpStream::connect(control).expect("connected");
        socket.write_all(format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).expect("sent");
        // Nobody may control by default; its description is for everybody who is let in.
        assert_eq!(status(&answer(&mut socket)), if path == "/control/v1" { 403 } else { 200 }, "{path}");
    }
    assert_eq!(status(&get(&rig, "/stats")), 200);
}
