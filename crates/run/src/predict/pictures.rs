//! Pictures in files of their own, brought to the size and channels of those a model has seen.
use std::fs::File;
use std::io::BufReader;
use std::path::PathBuf;

use fedeq_core::{Error, Result};
use fedeq_data::source::image_folder::ImageFolder;
use fedeq_data::{Images, Samples};

use super::question::Brought;
use crate::number::counted;

pub(super) fn read(like: &Images, files: &[PathBuf]) -> Result<Brought> {
    let reader = reader_for(like)?;
    let mut pixels = Vec::new();
    for file in files {
        let input = File::open(file).map_err(Error::io(file, "read it"))?;
        pixels.extend(reader.decode(BufReader::new(input), file)?.pixels);
    }
    let names = files.iter().map(|file| file.display().to_string()).collect();
    Ok(Brought { names, samples: Samples::Images(Images { pixels, white: 255, ..like.clone() }) })
}

fn reader_for(like: &Images) -> Result<ImageFolder> {
    let [.., channels] = like.shape;
    let unfitting = || {
        Error::invalid(
            format!("this model's pictures have {}", counted(channels, "channel")),
            "ask about samples of its own data",
        )
    };
    ImageFolder::for_shape(like.shape).ok_or_else(unfitting)
}
