//! Execution of the blocks of one page.

use std::path::PathBuf;

use serde_json::Value as Json;
use tidemill::App;

use super::World;
use super::blocks::{Block, blocks, commands, is_shown};
use crate::{root, run};

/// Page whose blocks are run.
pub struct Page<'w> {
    world: &'w World,
    name: &'w str,
    place: PathBuf,
    /// The last complete rules that the page shows.
    rules: String,
}

impl<'w> Page<'w> {
    pub fn new(world: &'w World, name: &'w str) -> Self {
        Self { world, name, place: world.place(name), rules: String::new() }
    }

    /// Runs all blocks in order.
    pub fn run(mut self, text: &str, wrong: &mut Vec<String>) {
        for block in blocks(text) {
            if let Err(message) = self.block(&block) {
                wrong.push(format!("{}:{}: {message}", self.name, block.line));
            }
        }
    }

    fn block(&mut self, block: &Block<'_>) -> Result<(), String> {
        if block.words.contains(&"text") {
            return Ok(());
        }
        let text = block.lines.join("\n");
        match block.words.as_slice() {
            ["console"] => self.console(&block.lines),
            ["sh"] => self.script(&block.lines),
            ["http"] => self.http(&text),
            ["rules"] => self.rules(&text),
            ["siddhi"] => compiles(&App::from_texts("page", None, &[("page.siddhi", &text)])),
            ["test"] => self.tests(&text),
            ["sql"] => self.sql(&text),
            ["toml"] => self.app_toml(&text),
            ["json"] => serde_json::from_str::<Json>(&text).map(drop).map_err(|e| e.to_string()),
            words => Err(format!(
                "a block of {words:?}: say behind its fence what it is, `text` if it is only shown"
            )),
        }
    }

    fn console(&self, lines: &[&str]) -> Result<(), String> {
        for (command, shown) in commands(lines) {
            if let Some(file) = command.strip_prefix("cat ") {
                let text = shown.join("\n");
                std::fs::write(self.place.join(file), format!("{}\n", text.trim_end())).unwrap();
                continue;
            }
            let (printed, code) = self.world.shell(&self.place, &command);
            let found: Vec<&str> = printed.trim_end().lines().collect();
            let end = shown.iter().rposition(|line| !line.trim().is_empty()).map_or(0, |last| last + 1);
            if code != 0 || !is_shown(&shown[..end], &found) {
                return Err(format!(
                    "{command}\nexit code {code}; expected\n{}\nfound\n{printed}",
                    shown.join("\n")
                ));
            }
        }
        Ok(())
    }

    fn script(&self, lines: &[&str]) -> Result<(), String> {
        let lines: Vec<String> = lines
            .iter()
            .filter(|line| !line.trim().is_empty() && !line.starts_with('#'))
            .map(|line| {
                format!("$ {}", line.split_once("   #").map_or(*line, |(command, _)| command).trim_end())
            })
            .collect();
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        for (command, _) in commands(&lines) {
            let (printed, code) = self.world.shell(&self.place, &command);
            if code != 0 {
                return Err(format!("{command}\nexit code {code}\n{printed}"));
            }
        }
        Ok(())
    }

    /// Runs requests: a line with method and path, one with the body, one with the reply; an empty line
    /// between requests.
    fn http(&self, text: &str) -> Result<(), String> {
        for request in text.split("\n\n") {
            let lines: Vec<&str> = request.lines().collect();
            let [head, body, shown] = lines.as_slice() else {
                return Err(format!("expected method and path, a body and the reply, found\n{request}"));
            };
            let (method, path) = head.split_once(' ').ok_or_else(|| format!("no path: {head}"))?;
            let command = format!(
                "curl -s -X {method} 'http://127.0.0.1:4700{path}' -H \"Authorization: Bearer $(cat DATA/token)\" \
                 -H 'Content-Type: application/json' -d '{body}'"
            );
            let (printed, _) = self.world.shell(&self.place, &command);
            let same = match (serde_json::from_str::<Json>(shown), serde_json::from_str::<Json>(&printed)) {
                (Ok(shown), Ok(found)) => shown == found,
                _ => false,
            };
            if !same {
                return Err(format!("{head}\n{body}\nexpected\n{shown}\nfound\n{printed}"));
            }
        }
        Ok(())
    }

    fn rules(&mut self, text: &str) -> Result<(), String> {
        let declared = std::fs::read_to_string(root().join("examples/flights/flights.rules")).unwrap();
        let whole = text.lines().any(|line| line.starts_with("event "));
        self.rules = if whole { text.to_owned() } else { format!("{declared}\n{text}") };
        compiles(&App::from_rules("page", &self.rules))
    }

    fn tests(&self, text: &str) -> Result<(), String> {
        let dir = self.place.join("tested");
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join("app.rules"), &self.rules).unwrap();
        std::fs::write(dir.join("app.test"), text).unwrap();
        self.ends_well(&format!("tidemill test {}", dir.display()))
    }

    fn sql(&self, text: &str) -> Result<(), String> {
        std::fs::write(self.place.join("query.sql"), text).unwrap();
        let own = self.place.join("app.siddhi");
        if !own.exists() {
            return self.ends_well("tidemill sql --data data -c \"$(cat query.sql)\"");
        }
        let app = self.place.join("app");
        std::fs::create_dir_all(&app).unwrap();
        std::fs::copy(own, app.join("app.siddhi")).unwrap();
        let data = self.place.join("own");
        run(&["run", app.to_str().unwrap(), "--data", data.to_str().unwrap(), "--until-idle"], 0);
        self.ends_well("tidemill sql --data own -c \"$(cat query.sql)\"")
    }

    fn app_toml(&self, text: &str) -> Result<(), String> {
        let dir = self.place.join("app-toml");
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join("app.rules"), "event E { n: int };").unwrap();
        std::fs::write(dir.join("app.toml"), text).unwrap();
        App::read(&dir, &[]).map(drop).map_err(|e| e.to_string())
    }

    fn ends_well(&self, command: &str) -> Result<(), String> {
        let (printed, code) = self.world.shell(&self.place, command);
        if code == 0 { Ok(()) } else { Err(format!("{command}\nexit code {code}\n{printed}")) }
    }
}

fn compiles(app: &App) -> Result<(), String> {
    tidemill::engine::compile(app).map(drop).map_err(|e| e.to_string())
}
