//! Loads a data set and says how large it is: `cargo run --release -p fedeq-data --example load -- cifar10 data`.
#![allow(clippy::print_stdout, clippy::print_stderr)]

use fedeq_data::source::{DatasetSummary, Source, catalog};
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let Some(name) = arguments.next() else {
        catalog().for_each(|entry| println!("{:12} {}", entry.name, entry.about));
        return ExitCode::SUCCESS;
    };
    let folder = arguments.next().unwrap_or_else(|| "data".into());
    match load(&name, folder.as_ref()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}\nhint: {}", error.hint());
            ExitCode::from(2)
        }
    }
}

fn load(name: &str, folder: &Path) -> fedeq_data::Result<()> {
    let start = Instant::now();
    let dataset = Source::named(name)?.load(folder)?;
    println!("{:#?}\nloaded in {:.2} s", DatasetSummary::of(&dataset), start.elapsed().as_secs_f64());
    Ok(())
}
