//! Echoes every WebSocket message on one shard: what protocol test suites talk to.
//!
//! `cargo run --release -p streamcast-shards --example echo -- 127.0.0.1:9001`

use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::AtomicIsize;
use std::time::Duration;

use streamcast_shards::inbound::Violation;
use streamcast_shards::{App, ConnId, Ended, Engine, Peer, Settings, UpgradeHead, frame, inbox, listen, probe, shard};

struct Echo;

impl App for Echo {
    type Session = ();
    type Remote = ();

    fn opened(&mut self, _: &mut Engine<()>, _: ConnId, _: &UpgradeHead) {}

    fn started(&mut self, engine: &mut Engine<()>, id: ConnId) {
        engine.limit_messages(id, 64 << 20);
    }

    fn message(&mut self, engine: &mut Engine<()>, id: ConnId, payload: &mut [u8], text: bool) {
        let mut bytes = Vec::with_capacity(payload.len() + 10);
        frame::push_frame(&mut bytes, if text { frame::opcode::TEXT } else { frame::opcode::BINARY }, payload);
        engine.queue(id, bytes);
    }

    fn violation(&mut self, engine: &mut Engine<()>, id: ConnId, violation: Violation) {
        let code = match violation {
            Violation::Protocol(_) => 1002,
            Violation::NotUtf8 => 1007,
            Violation::TooBig { .. } => 1009,
        };
        engine.close(id, code, "");
    }

    fn peer_closed(&mut self, engine: &mut Engine<()>, id: ConnId) {
        engine.echo_close(id);
    }

    fn closed(&mut self, _: &mut Engine<()>, _: ConnId, (): (), _: Ended) {}
    fn drained(&mut self, _: &mut Engine<()>, _: ConnId) {}
    fn remote(&mut self, _: &mut Engine<()>, (): ()) {}
    fn heard(&mut self) {}
    fn tick(&mut self, _: &mut Engine<()>) {}
    fn turned(&mut self, _: &mut Engine<()>, _: Duration) {}
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address: SocketAddr = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:9001".to_owned()).parse()?;
    probe::probe_io_uring()?;
    let listener = listen::listen(address, 1)?.remove(0);
    println!("echo on ws://{}", listener.local_addr()?);
    let (sender, receiver) = inbox::inbox()?;
    let cores = streamcast_shards::cores::allowed_cores();
    let doorbell = streamcast_shards::doorbell::Doorbell::start(vec![sender.clone()], cores.clone())?;
    let setup = shard::Setup {
        index: 0,
        core: cores[0],
        listener,
        doorbell,
        settings: Settings::default(),
        inbox: receiver,
        peers: vec![Peer { inbox: sender, connections: Arc::new(AtomicIsize::new(0)) }],
        handoff: Arc::new(|stream: TcpStream, _: Vec<u8>| drop(stream)),
    };
    let thread = shard::spawn(setup, |_| Echo)?;
    thread.join().map_err(|_| "the shard panicked")??;
    Ok(())
}
