//! Progress of a download: a bar on a terminal, a line now and then elsewhere.
use std::io::{IsTerminal, stderr};

use fedeq_data::fetch::{FetchEvent, FetchObserver};
use indicatif::{ProgressBar, ProgressStyle};

use crate::cli::output::tell;
use fedeq_run::number::bytes;

/// What fits where stderr goes.
pub(super) fn observer() -> Box<dyn FetchObserver> {
    if stderr().is_terminal() { Box::new(DownloadBar(None)) } else { Box::new(DownloadLines { tenths: 0 }) }
}

/// What is said the same way everywhere.
fn sentence(event: &FetchEvent<'_>) -> Option<String> {
    match event {
        FetchEvent::AlreadyThere => Some("everything is already there".into()),
        FetchEvent::Retrying { problem, pause } => Some(format!("{problem}; trying again in {:.0} s", pause.as_secs_f64())),
        FetchEvent::Checking { file } => Some(format!("checking `{}`", file.display())),
        FetchEvent::Placed { file } => Some(format!("wrote `{}`", file.display())),
        FetchEvent::Downloaded { .. } => None,
    }
}

/// A bar that moves.
struct DownloadBar(Option<ProgressBar>);

impl FetchObserver for DownloadBar {
    fn observe(&mut self, event: &FetchEvent<'_>) {
        if let FetchEvent::Downloaded { done, total } = event {
            let bar = self.0.get_or_insert_with(|| ProgressBar::new(*total).with_style(style()).with_position(*done));
            bar.set_position(*done);
            if done == total {
                bar.finish();
            }
        } else if let Some(sentence) = sentence(event) {
            match &self.0 {
                Some(bar) if !bar.is_finished() => bar.println(sentence),
                _ => tell(&sentence),
            }
        }
    }
}

fn style() -> ProgressStyle {
    let template = "{bar:40} {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left";
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

/// A line every tenth.
struct DownloadLines {
    tenths: u64,
}

impl FetchObserver for DownloadLines {
    fn observe(&mut self, event: &FetchEvent<'_>) {
        match event {
            FetchEvent::Downloaded { done, total } => self.downloaded(*done, *total),
            other => sentence(other).iter().for_each(|sentence| tell(sentence)),
        }
    }
}

impl DownloadLines {
    fn downloaded(&mut self, done: u64, total: u64) {
        let tenths = done * 10 / total.max(1);
        if tenths != self.tenths || done == 0 {
            self.tenths = tenths;
            tell(&format!("downloaded {} of {}", bytes(done), bytes(total)));
        }
    }
}
