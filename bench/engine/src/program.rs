//! Runs the program on one app and measures it from outside.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::cases::Case;
use crate::data;

/// How long the server may take until it answers.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// Connections that send at the same time.
const SENDERS: u64 = 2;

/// Time from the start of the program to its end, everything flushed.
#[derive(Debug, Clone, Copy)]
pub struct Cost {
    /// By the clock on the wall.
    pub wall: Duration,
    /// Of all threads, in user and kernel mode.
    pub cpu: Duration,
}

/// One run of a program.
pub struct Run<'a> {
    /// The program.
    pub program: &'a Path,
    /// The app.
    pub case: &'a Case,
    /// A new directory for the app and its data.
    pub dir: &'a Path,
}

impl Run<'_> {
    /// `tidemill run --until-idle` over `files`, one for each stream.
    ///
    /// Errors: the program fails, with what it wrote.
    pub fn read_files(&self, files: &[PathBuf]) -> anyhow::Result<Cost> {
        let sources = ["S", "T"].iter().zip(files).map(|(stream, file)| {
            format!(
                "[[source]]\nname = \"{stream}\"\ntype = \"file\"\nformat = \"csv\"\nstream = \"{stream}\"\npath = \"{}\"\n",
                file.display()
            )
        });
        let app = self.write_app(&sources.collect::<String>())?;
        let before = children_cpu()?;
        let start = Instant::now();
        let run = self.command("run").arg(app).arg("--until-idle").output()?;
        ensure!(run.status.success(), "{}: {}", self.case.name, String::from_utf8_lossy(&run.stderr));
        Ok(Cost { wall: start.elapsed(), cpu: children_cpu()?.saturating_sub(before) })
    }

    /// Posts `events` trades in bodies of `rows`, from [`SENDERS`] connections, and stops the server. Its start is not
    /// in the wall time; all of its CPU time is.
    ///
    /// Errors: the server does not start, refuses a body, or does not stop.
    pub fn over_http(&self, events: u64, rows: u64) -> anyhow::Result<Cost> {
        let app = self.write_app("")?;
        let before = children_cpu()?;
        let mut command = self.command("run");
        command.arg(app).args(["--listen", "127.0.0.1:0"]).stdout(Stdio::null()).stderr(Stdio::null());
        let mut server = command.spawn()?;
        let wall = self.post_all(events, rows).and_then(|start| {
            stop(&mut server)?;
            Ok(start.elapsed())
        });
        if wall.is_err() {
            let _ = server.kill();
            let _ = server.wait();
        }
        Ok(Cost { wall: wall?, cpu: children_cpu()?.saturating_sub(before) })
    }

    /// Returns when the first body was sent.
    fn post_all(&self, events: u64, rows: u64) -> anyhow::Result<Instant> {
        let address = self.wait_for_server()?;
        let token = std::fs::read_to_string(self.data().join("token"))?;
        let streams = if self.case.two_streams { 2 } else { 1 };
        let bodies: Vec<(usize, String)> = (0..events)
            .step_by((rows * streams) as usize)
            .flat_map(|from| (0..streams).map(move |s| (from, s)))
            .map(|(from, s)| (s as usize, self.body(from + s..events.min(from + rows * streams), streams)))
            .collect();
        let start = Instant::now();
        std::thread::scope(|scope| {
            let send = |sender: u64| {
                let (bodies, address, token) = (&bodies, &address, token.trim());
                move || -> anyhow::Result<()> {
                    let agent = ureq::Agent::new_with_defaults();
                    for (stream, body) in bodies.iter().skip(sender as usize).step_by(SENDERS as usize) {
                        agent
                            .post(format!("http://{address}/api/v1/streams/{}", ["S", "T"][*stream]))
                            .header("authorization", format!("Bearer {token}"))
                            .content_type("text/csv")
                            .send(body.as_str())?;
                    }
                    Ok(())
                }
            };
            let senders: Vec<_> = (0..SENDERS).map(|sender| scope.spawn(send(sender))).collect();
            senders.into_iter().try_for_each(|s| s.join().unwrap_or_else(|_| bail!("a sender panicked")))
        })?;
        Ok(start)
    }

    fn body(&self, numbers: std::ops::Range<u64>, step: u64) -> String {
        let mut body = Vec::from(data::HEADER);
        body.push(b'\n');
        for i in numbers.step_by(step as usize) {
            // writing to memory does not fail
            let _ = data::write_line(&mut body, i, self.case.symbols);
        }
        String::from_utf8(body).unwrap_or_default()
    }

    /// The result of the case's check.
    pub fn check(&self) -> anyhow::Result<Option<String>> {
        let Some(sql) = self.case.check else { return Ok(None) };
        let out = self.command("sql").args(["-c", sql]).output()?;
        ensure!(out.status.success(), "{sql}: {}", String::from_utf8_lossy(&out.stderr));
        let table = String::from_utf8_lossy(&out.stdout);
        let numbers = table.split_whitespace().filter(|word| word.parse::<f64>().is_ok());
        Ok(Some(numbers.collect::<Vec<_>>().join(" ")))
    }

    fn command(&self, name: &str) -> Command {
        let mut command = Command::new(self.program);
        command.arg(name).arg("--data").arg(self.data());
        command
    }

    fn data(&self) -> PathBuf {
        self.dir.join("data")
    }

    fn write_app(&self, sources: &str) -> anyhow::Result<PathBuf> {
        let app = self.dir.join("app");
        std::fs::create_dir(&app)?;
        std::fs::write(app.join("app.siddhi"), &self.case.siddhi)?;
        let partitions = self.case.partitions;
        let toml = format!("name = \"bench\"\n{sources}[settings]\npartitions = {partitions}\n");
        std::fs::write(app.join("app.toml"), toml)?;
        Ok(app)
    }

    fn wait_for_server(&self) -> anyhow::Result<String> {
        let start = Instant::now();
        loop {
            let address = std::fs::read(self.data().join("server.json")).ok().and_then(|file| {
                let file: serde_json::Value = serde_json::from_slice(&file).ok()?;
                Some(file["address"].as_str()?.to_owned())
            });
            if let Some(address) = address
                && ureq::get(format!("http://{address}/readyz")).call().is_ok()
            {
                return Ok(address);
            }
            ensure!(start.elapsed() < START_TIMEOUT, "the server does not answer");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

fn stop(server: &mut Child) -> anyhow::Result<()> {
    let pid = i32::try_from(server.id()).context("a process id that is no i32")?;
    kill(Pid::from_raw(pid), Signal::SIGTERM)?;
    let status = server.wait()?;
    ensure!(status.success(), "the server ended with {status}");
    Ok(())
}

fn children_cpu() -> anyhow::Result<Duration> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    let micros = |t: nix::sys::time::TimeVal| {
        Duration::new(t.tv_sec().unsigned_abs(), (t.tv_usec().unsigned_abs() * 1000) as u32)
    };
    Ok(micros(usage.user_time()) + micros(usage.system_time()))
}
