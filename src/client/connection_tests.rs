//! The connection against made-up brokers on loopback.

use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_tungstenite::accept_async;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::{Message, protocol::CloseFrame};

use super::super::close::CloseKind;
use super::*;

const GREETING: &str = r#"{"streamcast":4,"stream":"r","end_offset":null}"#;

type Peer = WebSocketStream<TcpStream>;

/// A broker that does `behave` with its first connection.
async fn broker<F>(behave: impl FnOnce(TcpStream) -> F + Send + 'static) -> Address
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    tokio::spawn(async move {
        let (socket, _) = listener.accept().await.expect("a connection");
        behave(socket).await;
    });
    Address::parse(&format!("ws://127.0.0.1:{port}/r")).expect("an address")
}

/// A broker that greets first.
async fn greeting<F>(behave: impl FnOnce(Peer) -> F + Send + 'static) -> Address
where
    F: Future<Output = ()> + Send + 'static,
{
    broker(|socket| async move {
        let mut peer = accept_async(socket).await.expect("an upgrade");
        peer.send(Message::text(GREETING)).await.expect("sent");
        behave(peer).await;
    })
    .await
}

/// Pings at once, and waits for longer than a busy machine stands still.
fn quick() -> Options {
    Options {
        connect_timeout: Duration::from_secs(60),
        ping: Duration::from_millis(50),
        pong_timeout: Duration::from_secs(60),
        close_timeout: Duration::from_millis(500),
        max_message_bytes: 8 << 20,
        trust: Trust::default(),
    }
}

async fn open(address: &Address, options: &Options) -> Result<Connection, ClientError> {
    Connection::open(address, "/r", options).await.map(|(connection, _)| connection)
}

fn closed(error: &ClientError) -> Option<&CloseKind> {
    match error {
        ClientError::Closed(closed) => Some(&closed.kind),
        _ => None,
    }
}

#[tokio::test]
async fn frames_come_in_order_in_text_or_binary_and_of_any_size() {
    let address = greeting(|mut peer| async move {
        for size in [1, 100_000, 3 << 20] {
            peer.send(Message::text("x".repeat(size))).await.expect("sent");
            peer.send(Message::Ping(Bytes::new())).await.expect("sent");
        }
        peer.send(Message::binary("é".as_bytes().to_vec())).await.expect("sent");
        peer.send(Message::binary(vec![0xff])).await.expect("sent");
        while peer.next().await.is_some_and(|message| message.is_ok()) {}
    })
    .await;
    let mut connection = open(&address, &Options::default()).await.expect("open");
    for size in [1, 100_000, 3 << 20] {
        assert_eq!(connection.next().await.expect("a frame").len(), size);
    }
    assert_eq!(connection.next().await.expect("a frame").as_str(), "é");
    assert!(matches!(connection.next().await, Err(ClientError::Protocol(_))));
}

#[tokio::test]
async fn a_frame_over_the_limit_is_an_error() {
    let address = greeting(|mut peer| async move {
        let _ = peer.send(Message::text("x".repeat(9 << 20))).await;
    })
    .await;
    let mut connection = open(&address, &quick()).await.expect("open");
    let error = connection.next().await.expect_err("too large").to_string();
    assert!(error.contains("at most 8388608"), "{error}");
}

#[tokio::test]
async fn pings_are_answered_and_sent() {
    let (sender, pongs) = tokio::sync::oneshot::channel();
    let address = greeting(|mut peer| async move {
        peer.send(Message::Ping(Bytes::from_static(b"hello"))).await.expect("sent");
        let (mut answered, mut pinged) = (false, 0);
        while !answered || pinged < 14 {
            match peer.next().await {
                Some(Ok(Message::Pong(payload))) => answered = payload.as_ref() == b"hello",
                // Reading a ping answers it.
                Some(Ok(Message::Ping(_))) => pinged += 1,
                other => panic!("{other:?}"),
            }
        }
        sender.send(()).expect("somebody waits");
        peer.send(Message::text("done")).await.expect("sent");
        while peer.next().await.is_some_and(|message| message.is_ok()) {}
    })
    .await;
    // For longer than without the pongs.
    let options = Options { ping: Duration::from_millis(250), pong_timeout: Duration::from_secs(3), ..quick() };
    let mut connection = open(&address, &options).await.expect("open");
    assert_eq!(connection.next().await.expect("kept alive").as_str(), "done");
    pongs.await.expect("pings both ways");
}

#[tokio::test]
async fn a_silent_peer_is_given_up() {
    let address = greeting(|peer| async move {
        // Never reads, so it never answers a ping.
        tokio::time::sleep(Duration::from_secs(60)).await;
        drop(peer);
    })
    .await;
    let options = Options { pong_timeout: Duration::from_millis(100), ..quick() };
    let mut connection = open(&address, &options).await.expect("open");
    let error = timeout(Duration::from_secs(60), connection.next()).await.expect("in time").expect_err("silence");
    assert!(matches!(&error, ClientError::Lost(why) if why.contains("ping")), "{error}");
    assert!(error.is_retryable());
}

#[tokio::test]
async fn refusals_come_in_place_of_the_greeting() {
    for (code, reason, retryable) in
        [(4404, r#"{"error":"no_such_stream"}"#, false), (1001, "stream stopping", true), (1011, "x", true)]
    {
        let address = broker(move |socket| async move {
            let mut peer = accept_async(socket).await.expect("an upgrade");
            let frame = CloseFrame { code: CloseCode::from(code), reason: reason.into() };
            peer.close(Some(frame)).await.expect("closed");
            while peer.next().await.is_some_and(|message| message.is_ok()) {}
        })
        .await;
        let error = open(&address, &quick()).await.err().expect("a refusal");
        assert!(closed(&error).is_some(), "{error}");
        assert_eq!(error.is_retryable(), retryable, "{code}");
    }
}

#[tokio::test]
async fn what_is_no_websocket_is_told_apart() {
    for (answer, status) in [
        ("HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n", Some(401)),
        ("HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n", Some(503)),
        ("", None),
    ] {
        let address = broker(move |mut socket| async move {
            let mut head = vec![0; 4_096];
            let _ = socket.read(&mut head).await;
            let _ = socket.write_all(answer.as_bytes()).await;
        })
        .await;
        let error = open(&address, &quick()).await.err().expect("no connection");
        match (&error, status) {
            (ClientError::Http { status }, Some(expected)) => assert_eq!(*status, expected),
            (ClientError::Lost(_), None) => {}
            _ => panic!("{error}"),
        }
        assert_eq!(error.is_retryable(), status != Some(401), "{error}");
    }
}

#[tokio::test]
async fn an_upgrade_that_is_never_answered_times_out() {
    let address = broker(|socket| async move {
        tokio::time::sleep(Duration::from_secs(60)).await;
        drop(socket);
    })
    .await;
    let options = Options { connect_timeout: Duration::from_millis(500), ..quick() };
    let error = open(&address, &options).await.err().expect("no connection");
    assert!(matches!(error, ClientError::TimedOut { .. }) && error.is_retryable(), "{error}");
}

#[tokio::test]
async fn a_first_frame_that_is_no_greeting_is_refused() {
    let address = broker(|socket| async move {
        let mut peer = accept_async(socket).await.expect("an upgrade");
        peer.send(Message::text("[1,2,{}]")).await.expect("sent");
        while peer.next().await.is_some_and(|message| message.is_ok()) {}
    })
    .await;
    assert!(matches!(open(&address, &quick()).await, Err(ClientError::Protocol(_))));
}

/// A broker that stops reading until its replies are taken: writing and reading have to go on side by side.
#[tokio::test]
async fn queued_frames_and_replies_do_not_wait_for_each_other() {
    const FRAMES: usize = 32;
    const BYTES: usize = 1 << 20;
    let address = greeting(|mut peer| async move {
        for _ in 0..FRAMES {
            let frame = peer.next().await.expect("a frame").expect("whole");
            assert_eq!(frame.len(), BYTES);
            peer.send(Message::text("r".repeat(BYTES))).await.expect("sent");
        }
        while peer.next().await.is_some_and(|message| message.is_ok()) {}
    })
    .await;
    let mut connection = open(&address, &Options::default()).await.expect("open");
    for _ in 0..FRAMES {
        connection.queue("f".repeat(BYTES));
    }
    let replies = async {
        for _ in 0..FRAMES {
            assert_eq!(connection.next().await.expect("a reply").len(), BYTES);
        }
    };
    timeout(Duration::from_secs(60), replies).await.expect("no deadlock");
    connection.close().await;
}

#[tokio::test]
async fn closing_is_bounded() {
    let address = greeting(|peer| async move {
        tokio::time::sleep(Duration::from_secs(60)).await;
        drop(peer);
    })
    .await;
    let connection = open(&address, &quick()).await.expect("open");
    timeout(Duration::from_secs(60), connection.close()).await.expect("it does not wait for ever");
}
