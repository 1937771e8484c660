use std::io::Read;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use super::*;
use crate::conn::{ConnId, Phase};
use crate::engine::{Engine, FeedLimits, Settings};

/// Every piece is `length, text`, the text mixed with the piece's number: pieces that are lost, doubled or in another
/// order cannot be read.
struct Toy(u8);

impl Cipher for Toy {
    fn seal(&mut self, plain: &[u8], sealed: &mut Vec<u8>) -> io::Result<()> {
        sealed.extend_from_slice(&(plain.len() as u32).to_le_bytes());
        sealed.extend(plain.iter().map(|byte| byte ^ self.0));
        self.0 = self.0.wrapping_add(1);
        Ok(())
    }

    fn open(&mut self, _: &[u8], _: &mut Vec<u8>, _: &mut Vec<u8>) -> io::Result<bool> {
        Ok(false)
    }

    fn finish(&mut self, _: &mut Vec<u8>) {}
}

fn opened(mut sealed: &[u8]) -> Vec<u8> {
    let (mut plain, mut number) = (Vec::new(), 0u8);
    while let Some((length, rest)) = sealed.split_first_chunk() {
        let (text, rest) = rest.split_at(u32::from_le_bytes(*length) as usize);
        plain.extend(text.iter().map(|byte| byte ^ number));
        (sealed, number) = (rest, number.wrapping_add(1));
    }
    plain
}

/// Frames of a test: whose they are, how long, and how they are filled.
fn frame(of: u8, number: u32) -> Vec<u8> {
    let length = 7 + number.wrapping_mul(2_654_435_761) % 3_000;
    let mut out = vec![of];
    out.extend_from_slice(&length.to_le_bytes());
    out.resize(5 + length as usize, number as u8);
    out
}

fn frames_of(of: u8, mut bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let length = u32::from_le_bytes([bytes[1], bytes[2], bytes[3], bytes[4]]) as usize;
        let (frame, rest) = bytes.split_at(5 + length);
        found.extend((frame[0] == of).then(|| frame.to_vec()));
        bytes = rest;
    }
    found
}

struct Peer {
    id: ConnId,
    socket: UnixStream,
    received: Vec<u8>,
}

impl Peer {
    fn read(&mut self, most: usize) {
        let mut bytes = vec![0; most];
        while let Ok(count @ 1..) = self.socket.read(&mut bytes) {
            self.received.extend_from_slice(&bytes[..count]);
        }
    }
}

/// What the shard does when a full socket has room again.
fn write(engine: &mut Engine<()>, id: ConnId) {
    let Some(conn) = engine.conn(id).filter(|conn| conn.blocked) else { return };
    let fd = conn.fd();
    let sent = engine.with_next_bytes(id, |bytes| {
        // SAFETY: the bytes are valid for the call, and the descriptor is open.
        unsafe { libc::send(fd, bytes.as_ptr().cast(), bytes.len(), libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) }
    });
    match sent.map(usize::try_from) {
        None => engine.unblock(id, 0),
        Some(Ok(taken)) => engine.unblock(id, taken),
        Some(Err(_)) => {}
    }
}

/// Whether a subscriber's socket has taken everything.
fn is_out(engine: &Engine<()>, id: ConnId) -> bool {
    let conn = engine.conn(id).unwrap();
    let (feed, slot) = conn.sub.unwrap();
    let feed = &engine.feeds[feed as usize];
    conn.is_idle() && !conn.blocked && feed.slots[slot as usize].position == feed.ring.end()
}

#[test]
fn feeds_and_own_frames_arrive_whole_and_in_order_however_little_sockets_take() {
    const OF_FEED: u8 = 1;
    const OWN: u8 = 2;
    let mut engine = Engine::<()>::new(Settings::default()).unwrap();
    let feed = engine.create_feed(FeedLimits { max_backlog_frames: usize::MAX, max_backlog_bytes: u64::MAX });
    let mut peers: Vec<Peer> = (0..9)
        .map(|number| {
            let (near, far) = UnixStream::pair().unwrap();
            // Some take a piece at once, some a small part of it.
            socket2::SockRef::from(&near).set_send_buffer_size([4 << 10, 40 << 10, 1 << 20][number % 3]).unwrap();
            far.set_nonblocking(true).unwrap();
            let id = engine.insert(near.into());
            let conn = engine.conn_mut(id).unwrap();
            conn.phase = Phase::Open;
            conn.secured = Some(Box::new(Secured::new(Box::new(Toy(0)))));
            engine.subscribe(id, feed, false);
            Peer { id, socket: far, received: Vec::new() }
        })
        .collect();
    let mut own = vec![Vec::new(); peers.len()];
    let mut published = Vec::new();
    for round in 0..60u32 {
        let (mut bytes, mut ends) = (Vec::new(), Vec::new());
        for number in 0..1 + round % 80 {
            let frame = frame(OF_FEED, round * 100 + number);
            bytes.extend_from_slice(&frame);
            ends.push(bytes.len() as u32);
            published.push(frame);
        }
        assert!(engine.append(feed, &bytes, &ends).is_empty());
        for (place, peer) in peers.iter_mut().enumerate() {
            if (round as usize + place).is_multiple_of(4) {
                let frame = frame(OWN, round);
                engine.queue(peer.id, frame.clone());
                own[place].push(frame);
            }
        }
        engine.flush(Instant::now() + Duration::from_secs(1)).unwrap();
        for (place, peer) in peers.iter_mut().enumerate() {
            if (round as usize + place).is_multiple_of(3) {
                peer.read(3_000 * (place + 1));
                write(&mut engine, peer.id);
            }
        }
        assert!(engine.sealed.capacity() <= 1 << 20, "{}", engine.sealed.capacity());
    }
    let until = Instant::now() + Duration::from_secs(60);
    while peers.iter().any(|peer| !is_out(&engine, peer.id)) {
        assert!(Instant::now() < until, "not all is sent");
        engine.flush(Instant::now() + Duration::from_secs(1)).unwrap();
        for peer in &mut peers {
            peer.read(1 << 16);
            write(&mut engine, peer.id);
        }
    }
    peers.iter_mut().for_each(|peer| peer.read(1 << 16));
    for (peer, own) in peers.iter().zip(&own) {
        let plain = opened(&peer.received);
        assert_eq!(frames_of(OF_FEED, &plain), published);
        assert_eq!(frames_of(OWN, &plain), *own);
        let kept = engine.conn(peer.id).and_then(|conn| conn.secured.as_ref()).unwrap();
        assert!(kept.pending().is_empty() && kept.sealed.capacity() <= KEPT_BYTES);
    }
}
