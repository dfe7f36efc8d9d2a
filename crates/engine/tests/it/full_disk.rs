//! Tests on a disk that is actually full: a small tmpfs, which only root can mount.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tidemill_engine::{App, BodyFormat, Engine, SendOptions};
use tidemill_types::ErrorKind;

use crate::{quiet, rows};

const RULES: &str = "
    event Order { id: string, customer: string, note: string } key id id id;
    event Audit { customer: string, id: string } key customer;
    rule Check { when { o: Order(); } then { emit Audit { customer: o.customer, id: o.id }; } }
";

/// Time limit of waits.
const PATIENCE: Duration = Duration::from_secs(120);

/// Runs `test` on a file system of `mib` MiB.
fn on_disk_of(mib: u32, test: impl FnOnce(&Path) + std::panic::UnwindSafe) {
    let dir = tempfile::tempdir().unwrap();
    let size = format!("size={mib}m");
    if !succeeds("mount", &["-t", "tmpfs", "-o", &size, "tmpfs"], dir.path()) {
        eprintln!("skipped: a tmpfs can be mounted by root only");
        return;
    }
    let tried = std::panic::catch_unwind(|| test(dir.path()));
    assert!(succeeds("umount", &[], dir.path()));
    if let Err(panic) = tried {
        std::panic::resume_unwind(panic);
    }
}

fn succeeds(program: &str, args: &[&str], dir: &Path) -> bool {
    Command::new(program).args(args).arg(dir).output().is_ok_and(|o| o.status.success())
}

/// Opens an engine that flushes and checkpoints only on demand. Tables are in `tables`, or in the data
/// directory.
fn open(disk: &Path, tables: Option<&Path>) -> Engine {
    let mut app = App::from_rules("shop", RULES);
    app.settings.segment_bytes = 256 << 10;
    app.settings.tables = tables.map(|t| t.to_string_lossy().into_owned());
    Engine::open(&disk.join("data"), Some(quiet(app))).unwrap()
}

struct Sender {
    rng: StdRng,
    next: usize,
    acknowledged: u64,
}

impl Sender {
    fn new() -> Self {
        Self { rng: StdRng::seed_from_u64(11), next: 0, acknowledged: 0 }
    }

    /// Sends about 64 KiB of incompressible data.
    fn send(&mut self, engine: &Engine) -> tidemill_types::Result<()> {
        let mut lines = String::new();
        for _ in 0..32 {
            let note: String = (0..1000).map(|_| format!("{:02x}", self.rng.random::<u8>())).collect();
            let id = self.next;
            lines += &format!("{{\"id\":\"{id}\",\"customer\":\"c{}\",\"note\":\"{note}\"}}\n", id % 10);
            self.next += 1;
        }
        let options = SendOptions { origin: "test".into(), ..SendOptions::default() };
        engine.send_json("Order", lines.as_bytes(), BodyFormat::Ndjson, &options)?;
        self.acknowledged += 32;
        Ok(())
    }

    fn send_until_refused(&mut self, engine: &Engine) {
        let error = loop {
            if let Err(e) = self.send(engine) {
                break e;
            }
        };
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(error.message().contains("disk full"), "{error}");
    }

    fn send_until_taken(&mut self, engine: &Engine) {
        let start = Instant::now();
        while let Err(e) = self.send(engine) {
            assert!(start.elapsed() < PATIENCE, "still refused: {e}; {:?}", engine.health());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Checks that every acknowledged event and its derived events are stored exactly once.
    fn check(&self, engine: &Engine) {
        engine.wait_idle();
        let stored = rows(engine, "Order");
        assert!(
            (self.acknowledged..=self.next as u64).contains(&stored),
            "{stored} of {}",
            self.acknowledged
        );
        assert_eq!(rows(engine, "Audit"), stored);
        for stream in engine.streams().unwrap() {
            assert!(stream.ledger.balances(), "{} {:?}", stream.schema.name, stream.ledger);
        }
    }
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn disk_filled_by_the_log_heals_by_a_checkpoint() {
    on_disk_of(24, |disk| {
        let tables = tempfile::tempdir().unwrap();
        let engine = open(disk, Some(tables.path()));
        let mut sender = Sender::new();
        // more than the disk can store
        while sender.next < 32 * 500 {
            if sender.send(&engine).is_err() {
                sender.send_until_taken(&engine);
            }
        }
        until("ready again", || engine.health().ready);
        sender.check(&engine);
        engine.stop().unwrap();
        drop(engine);
        let log = std::fs::read_dir(disk.join("data/log/p00000")).unwrap().map(|f| f.unwrap());
        let bytes: u64 = log.map(|f| f.metadata().unwrap().len()).sum();
        assert!(bytes < 256 << 10, "a stop leaves {bytes} bytes of log");
        sender.check(&open(disk, Some(tables.path())));
    });
}

#[test]
fn disk_filled_by_tables_heals_when_it_is_enlarged() {
    on_disk_of(24, |disk| {
        let engine = open(disk, None);
        let mut sender = Sender::new();
        let start = Instant::now();
        // checkpoints free space until stored data fills the disk
        while start.elapsed() < PATIENCE {
            sender.send_until_refused(&engine);
            let stuck = Instant::now();
            while sender.send(&engine).is_err() && stuck.elapsed() < Duration::from_secs(4) {
                std::thread::sleep(Duration::from_millis(20));
            }
            // a checkpoint that is still being written may make room
            if stuck.elapsed() >= Duration::from_secs(4) && !engine.health().ready {
                break;
            }
        }
        assert!(!engine.health().ready);
        let stop = Instant::now();
        let _ = engine.stop();
        assert!(stop.elapsed() < PATIENCE, "stopped in {:?}", stop.elapsed());
        drop(engine);
        // a start on the full disk does no damage
        let engine = open(disk, None);
        assert!(succeeds("mount", &["-o", "remount,size=64m"], disk));
        sender.send_until_taken(&engine);
        until("ready again", || engine.health().ready);
        sender.check(&engine);
        // a machine that is busy may need longer than a stop waits for the tables; the next start then replays more
        let _ = engine.stop();
        drop(engine);
        sender.check(&open(disk, None));
    });
}

#[test]
fn disk_filled_by_others_heals_when_they_make_room() {
    on_disk_of(24, |disk| {
        let engine = open(disk, None);
        let mut sender = Sender::new();
        (0..20).for_each(|_| sender.send(&engine).unwrap());
        let ballast = disk.join("ballast");
        // a checkpoint that drops old records makes room again
        until("not ready", || {
            fill(&ballast);
            sender.send_until_refused(&engine);
            !engine.health().ready
        });
        let stop = Instant::now();
        let _ = engine.stop();
        assert!(stop.elapsed() < PATIENCE, "stopped in {:?}", stop.elapsed());
        drop(engine);
        fill(&ballast);
        // on a disk without a free byte, a start may fail but must not change anything
        drop(Engine::open(&disk.join("data"), None));
        std::fs::remove_file(&ballast).unwrap();
        let engine = open(disk, None);
        sender.send_until_taken(&engine);
        until("ready again", || engine.health().ready);
        sender.check(&engine);
    });
}

/// Fills the disk completely.
fn fill(path: &Path) {
    use std::io::Write;
    let mut file = std::fs::File::options().append(true).create(true).open(path).unwrap();
    for size in [1 << 16, 1 << 12, 1] {
        while file.write_all(&vec![0; size]).is_ok() {}
    }
}
