//! The command line.

mod cli;

use std::process::ExitCode;

use clap::Parser;

/// Small allocations on one thread that another one frees are what an event's way consists of; figures in `bench/README.md`.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let args = match cli::Args::try_parse() {
        Ok(args) => args,
        Err(e) => {
            // help and version are answers, everything else is a usage error
            let code = if e.use_stderr() { 2 } else { 0 };
            let _ = e.print();
            return ExitCode::from(code);
        }
    };
    cli::init_tracing(args.verbose);
    cli::warn_of_environment(std::env::vars_os());
    match cli::run(args) {
        Ok(code) => code,
        Err(e) => {
            let text = cli::error_text(&e);
            // diagnostics say themselves that they are errors
            let what = if text.starts_with("error") { "" } else { "error: " };
            cli::stdio::err(format_args!("{what}{}\n", text.trim_end()));
            ExitCode::FAILURE
        }
    }
}
