//! `tidemill new`: writes a small app to begin with.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};

/// Files of the app, by their paths in its directory. `__NAME__` is replaced by the app's name.
const FILES: [(&str, &str); 4] = [
    ("app.toml", include_str!("new/app.toml")),
    ("rooms.rules", include_str!("new/rooms.rules")),
    ("averages.siddhi", include_str!("new/averages.siddhi")),
    ("tests/rooms.test", include_str!("new/rooms.test")),
];

/// Longest name, in bytes; a file name can have 255.
const NAME_BYTES_MAX: usize = 100;

/// Writes a small app to begin with: a source, a rule, a query and a test.
///
/// The app runs without other programs: its source makes up temperatures. The comments in its files say what each part does.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  tidemill new coldrooms")]
pub struct NewArgs {
    /// Directory to write, which is called like the app. It must not exist, or be empty.
    #[arg(value_name = "NAME")]
    dir: PathBuf,
}

pub fn new(args: NewArgs) -> anyhow::Result<ExitCode> {
    let name = name_of(&args.dir)?;
    write(&args.dir, name)?;
    let dir = args.dir.display();
    println!(
        "{dir} is an app with a source, two rules, a query and three tests:
  {dir}/app.toml          its name and its source
  {dir}/rooms.rules       events, documents and rules
  {dir}/averages.siddhi   a query
  {dir}/tests/rooms.test  tests

Next:
  tidemill test {dir}              run the tests
  tidemill run {dir} --data data   run the app; Ctrl-C stops it
docs/tutorial.md goes on from there."
    );
    Ok(ExitCode::SUCCESS)
}

/// Returns the app's name: the last part of the path.
///
/// Errors: one that would need quotes in a shell, or is not a name at all.
fn name_of(dir: &Path) -> anyhow::Result<&str> {
    let expected =
        "expected letters, digits, `-` and `_`, with a letter first, such as `tidemill new coldrooms`";
    let name = dir.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if !name.starts_with(|c: char| c.is_ascii_alphabetic()) || !name.chars().all(is_plain) {
        bail!("`{}` cannot be the name of an app: {expected}", dir.display());
    }
    if name.len() > NAME_BYTES_MAX {
        bail!("the name has {} characters; expected at most {NAME_BYTES_MAX}", name.len());
    }
    Ok(name)
}

/// Writes the files. They are written beside the directory first, so that it has either all of them or does not exist.
fn write(dir: &Path, name: &str) -> anyhow::Result<()> {
    let parent = match dir.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    if !parent.is_dir() {
        bail!("{}: no such directory; make it first with `mkdir -p {0}`", parent.display());
    }
    let taken = || {
        format!("{}: exists already and is not empty; choose another name, or remove it first", dir.display())
    };
    match dir.read_dir().map(|mut entries| entries.next().is_none()) {
        Ok(true) => {}
        Ok(false) => bail!(taken()),
        Err(e) if e.kind() == ErrorKind::NotFound => {}
        Err(_) => bail!("{}: exists already and is no directory; choose another name", dir.display()),
    }
    let unfinished = parent.join(format!(".{name}.{}.new", std::process::id()));
    let written = write_files(&unfinished, name)
        // an empty directory is replaced; one that another process has filled since is not
        .and_then(|()| std::fs::rename(&unfinished, dir).with_context(taken));
    if written.is_err() {
        // if it cannot be removed either, it does no harm
        let _ = std::fs::remove_dir_all(&unfinished);
    }
    written
}

fn write_files(dir: &Path, name: &str) -> anyhow::Result<()> {
    for (path, text) in FILES {
        let path = dir.join(path);
        let parent = path.parent().unwrap_or(dir);
        std::fs::create_dir_all(parent)
            .and_then(|()| std::fs::write(&path, text.replace("__NAME__", name)))
            .with_context(|| path.display().to_string())?;
    }
    Ok(())
}
