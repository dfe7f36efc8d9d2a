//! Command line of Tidemill.

mod cli;

use std::process::ExitCode;

/// Processing an event makes many small allocations on one thread that another thread frees; figures are in
/// `bench/README.md`.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let args = match cli::Args::read() {
        Ok(args) => args,
        Err(e) => {
            // help and version are not errors; all else is a usage error
            let code = if e.use_stderr() { 2 } else { 0 };
            let _ = e.print();
            return ExitCode::from(code);
        }
    };
    cli::init_tracing(&args);
    tracing::debug!(version = env!("CARGO_PKG_VERSION"), "the program starts");
    cli::warn_of_environment(std::env::vars_os());
    match cli::run(args) {
        Ok(code) => code,
        Err(e) => {
            let text = cli::error_text(&e);
            // diagnostics already start with `error`
            let what = if text.starts_with("error") { "" } else { "error: " };
            cli::stdio::err(format_args!("{what}{}\n", text.trim_end()));
            ExitCode::FAILURE
        }
    }
}
