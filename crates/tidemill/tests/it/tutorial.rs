//! `docs/tutorial.md`, followed to the letter in an empty directory.
//!
//! Blocks are those of other pages ([`crate::pages`]), with these differences. `tidemill run APP` without `--until-idle` runs
//! in the background, as in the reader's first terminal, until the page runs it again; what the page shows is the beginning of
//! what it prints. `$ cat FILE` shows a file that is there. Behind a fence, the word after the kind names the file that the
//! block is written to: all of it, or from the rule on that the block declares.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use crate::pages::blocks::{Block, blocks, commands, is_shown};
use crate::{interrupt, root};

/// How long the program may take to print what the page shows.
const PATIENCE: Duration = Duration::from_secs(120);

/// Program in the background.
struct Running {
    child: Child,
    lines: Receiver<String>,
    printed: Vec<String>,
}

impl Running {
    /// Starts a command, and waits until it has printed what is shown.
    fn start(mut command: Command, shown: &[&str]) -> Result<Self, String> {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (sender, lines) = channel();
        let streams: [Box<dyn std::io::Read + Send>; 2] =
            [Box::new(child.stdout.take().unwrap()), Box::new(child.stderr.take().unwrap())];
        for stream in streams {
            let sender = sender.clone();
            std::thread::spawn(move || {
                // after the last line that the page shows nobody listens, and the program goes on
                for line in BufReader::new(stream).lines().map_while(Result::ok) {
                    let _ = sender.send(line);
                }
            });
        }
        let mut running = Self { child, lines, printed: Vec::new() };
        // lines of both streams come in any order, so each shown line must come, and those of one stream in order
        let deadline = Instant::now() + PATIENCE;
        let wanted: Vec<&str> = shown.iter().copied().filter(|line| line.trim() != "…").collect();
        loop {
            let missing = wanted
                .iter()
                .find(|line| !running.printed.iter().any(|found| is_shown(&[line], &[&of_page(found)])));
            let Some(missing) = missing else { return Ok(running) };
            match running.lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(line) => running.printed.push(line),
                Err(_) => {
                    return Err(format!(
                        "expected the line\n{missing}\nfound\n{}",
                        running.printed.join("\n")
                    ));
                }
            }
        }
    }

    /// Address at which the program listens, `127.0.0.1:PORT`.
    fn address(&self) -> String {
        let line = self.printed.iter().find_map(|line| line.strip_prefix("Listening on http://"));
        line.expect("the program listens").to_owned()
    }

    fn stop(&mut self) {
        interrupt(self.child.id());
        assert!(self.child.wait().unwrap().success(), "Ctrl-C stops the program in order");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Replaces the port that the test has by the default one, which the page shows.
fn of_page(line: &str) -> String {
    let Some((before, behind)) = line.split_once("http://127.0.0.1:") else { return line.to_owned() };
    let rest = behind.trim_start_matches(|c: char| c.is_ascii_digit());
    format!("{before}http://127.0.0.1:4700{rest}")
}

struct Reader {
    dir: PathBuf,
    path: String,
    running: Option<Running>,
}

impl Reader {
    fn block(&mut self, block: &Block<'_>) -> Result<(), String> {
        match block.words.as_slice() {
            ["console"] => commands(&block.lines)
                .into_iter()
                .try_for_each(|(command, shown)| self.command(&command, &shown)),
            ["rules" | "test", file] => {
                write(&self.dir.join(file), &block.lines.join("\n"));
                Ok(())
            }
            words => Err(format!("a block of {words:?} is not run: use `console`, or a kind and a file")),
        }
    }

    fn command(&mut self, command: &str, shown: &[&str]) -> Result<(), String> {
        let end = shown.iter().rposition(|line| !line.trim().is_empty()).map_or(0, |last| last + 1);
        let shown = &shown[..end];
        if command.starts_with("tidemill run ") && !command.contains("--until-idle") {
            self.running.iter_mut().for_each(Running::stop);
            let command = self.shell(&format!("exec {command} --listen 127.0.0.1:0"));
            self.running = Some(Running::start(command, shown)?);
            return Ok(());
        }
        let address = self.running.as_ref().map_or_else(|| "127.0.0.1:4700".to_owned(), Running::address);
        let output = self.shell(&command.replace("127.0.0.1:4700", &address)).output().unwrap();
        let printed = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        let found: Vec<&str> = printed.trim_end().lines().collect();
        if !output.status.success() || !is_shown(shown, &found) {
            return Err(format!(
                "{command}\n{}; expected\n{}\nfound\n{printed}",
                output.status,
                shown.join("\n")
            ));
        }
        Ok(())
    }

    fn shell(&self, text: &str) -> Command {
        let mut shell = Command::new("sh");
        shell.args(["-c", text]).current_dir(&self.dir).env("PATH", &self.path).stdin(Stdio::null());
        shell.env_remove("RUST_LOG").env("TIDEMILL_MONGO", "off").env("TIDEMILL_POSTGRES", "off");
        shell
    }
}

/// Writes a block to a file: all of it, or from the line on that begins the rule which the block declares.
fn write(file: &Path, block: &str) {
    let before = std::fs::read_to_string(file).unwrap_or_default();
    let rule = block.lines().find(|line| line.starts_with("rule "));
    let name = rule.map(|line| line.split(' ').take(2).collect::<Vec<_>>().join(" "));
    let kept = name.and_then(|name| before.find(&format!("\n{name} "))).map_or("", |at| &before[..=at]);
    std::fs::write(file, format!("{kept}{block}\n")).unwrap();
}

#[test]
fn the_tutorial_leads_to_where_it_says() {
    let dir = tempfile::tempdir().unwrap();
    let bin = dir.path().join("bin");
    std::fs::create_dir(&bin).unwrap();
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_tidemill"), bin.join("tidemill")).unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let place = dir.path().join("place");
    std::fs::create_dir(&place).unwrap();
    let mut reader = Reader { dir: place, path, running: None };
    let text = std::fs::read_to_string(root().join("docs/tutorial.md")).unwrap();
    for block in blocks(&text) {
        if let Err(message) = reader.block(&block) {
            panic!("docs/tutorial.md:{}: {message}", block.line);
        }
    }
    reader.running.iter_mut().for_each(Running::stop);
}
