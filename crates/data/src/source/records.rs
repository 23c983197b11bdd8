//! Binary files of labelled pictures: one record after the other and nothing else.
//!
//! A record is a few label bytes, the last of which is the class, and then the picture, channel by channel (CHW), row by row.
use crate::{Dataset, Error, Images, Labels, Place, Result, Samples, Scaling};
use std::io::Read;
use std::path::Path;

const REMEDY: &str = "download and unpack the publisher's archive again";

/// How the records of a file are laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordLayout {
    /// Bytes before the picture; the last of them is the class.
    pub label_bytes: usize,
    /// How many classes there are.
    pub classes: u8,
    /// Height, width, channels.
    pub shape: [usize; 3],
    /// The byte that stands for 1.0: no value may be above it.
    pub white: u8,
}

impl RecordLayout {
    /// Bytes a record.
    pub fn record_bytes(&self) -> usize {
        self.label_bytes + self.picture_bytes()
    }

    fn picture_bytes(&self) -> usize {
        self.shape.iter().product()
    }
}

/// Pictures and classes gathered from one file after the other.
#[derive(Clone, Debug)]
pub struct Records {
    layout: RecordLayout,
    pixels: Vec<u8>,
    classes: Vec<u16>,
}

impl Records {
    /// Nothing yet.
    pub fn new(layout: RecordLayout) -> Self {
        Self { layout, pixels: Vec::new(), classes: Vec::new() }
    }

    /// How many records have been read.
    pub fn len(&self) -> usize {
        self.classes.len()
    }

    /// Whether none has been read.
    pub fn is_empty(&self) -> bool {
        self.classes.is_empty()
    }

    /// Reads every record of a file, of which there must be at least one.
    pub fn read(mut self, mut input: impl Read, file: &Path) -> Result<Self> {
        let bytes = self.layout.record_bytes();
        let mut record = Vec::with_capacity(bytes);
        for index in 0.. {
            record.clear();
            input.by_ref().take(bytes as u64).read_to_end(&mut record).map_err(Error::io(file, "read it"))?;
            match record.len() {
                0 if index > 0 => break,
                found if found < bytes => return Err(cut_short(file, index * bytes as u64, bytes, found)),
                _ => self.push(&record).map_err(|problem| Error::malformed(file, Place::Record(index), problem, REMEDY))?,
            }
        }
        Ok(self)
    }

    /// Everything that was read, as a data set.
    pub fn into_dataset(mut self, name: &str, class_names: Vec<String>, scaling: Scaling, test_start: Option<usize>) -> Dataset {
        self.pixels.shrink_to_fit();
        let RecordLayout { shape, white, .. } = self.layout;
        Dataset {
            name: name.into(),
            samples: Samples::Images(Images { shape, pixels: self.pixels, white, scaling }),
            labels: Labels::Classes { names: class_names, values: self.classes },
            owners: None,
            test_start,
        }
    }

    fn push(&mut self, record: &[u8]) -> Result<(), String> {
        let (labels, picture) = record.split_at(self.layout.label_bytes);
        let class = labels[labels.len() - 1];
        if class >= self.layout.classes {
            return Err(format!("label `{class}` is not below {}", self.layout.classes));
        }
        if let Some(value) = picture.iter().find(|&&value| value > self.layout.white) {
            return Err(format!("pixel value `{value}` is above {}", self.layout.white));
        }
        self.classes.push(class.into());
        self.push_channels_last(picture);
        Ok(())
    }

    /// Appends a picture stored channel by channel (CHW) as one stored pixel by pixel (HWC).
    fn push_channels_last(&mut self, planes: &[u8]) {
        let [height, width, channels] = self.layout.shape;
        let start = self.pixels.len();
        self.pixels.resize(start + planes.len(), 0);
        for (at, pixel) in self.pixels[start..].chunks_exact_mut(channels).enumerate() {
            for (channel, value) in pixel.iter_mut().enumerate() {
                *value = planes[channel * height * width + at];
            }
        }
    }
}

fn cut_short(file: &Path, offset: u64, wanted: usize, found: usize) -> Error {
    let problem = format!("a record of {wanted} bytes should begin here, but only `{found}` bytes are left");
    Error::malformed(file, Place::Byte(offset), problem, REMEDY)
}
