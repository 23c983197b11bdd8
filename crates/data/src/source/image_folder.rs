//! Your own pictures, in folders by client and class: `root/<client>/<class>/<picture>`.
//!
//! Clients are in order of their names; classes are the names found in any client, in order, unless they are given. Everything but folders and
//! pictures is refused rather than skipped, so that nothing goes missing unseen; only names that begin with a dot are passed over.
use super::classes::ClassNames;
use super::roster::Roster;
use super::{DataSet, Entry, SampleKind, UsualPartition, locate};
use crate::error::counted;
use crate::{Dataset, Error, Images, Owners, Place, Result, Samples, Scaling};
use image::imageops::FilterType;
use image::{DynamicImage, ImageError, ImageReader, Limits};
use rayon::prelude::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::io::{BufRead, Seek};
use std::num::NonZeroU16;
use std::path::{Path, PathBuf};

const FORMATS: [&str; 7] = ["png", "jpg", "jpeg", "bmp", "pbm", "pgm", "ppm"];
const EXPECTED: &str = "lay the pictures out as `<client>/<class>/<picture>`, and keep other files elsewhere";
/// What decoding one picture may allocate, and no side may be longer than this either.
const MOST_BYTES: u64 = 256 * 1024 * 1024;
const LONGEST_SIDE: u32 = 8_192;
/// Pictures decoded at a time, and bytes of them if the pictures are large, so that the decoded ones are never all held twice.
const BLOCK: usize = 256;
const BLOCK_BYTES: usize = 256 * 1024 * 1024;
/// Bytes of all decoded pictures together: 16 GiB.
const MOST_PIXELS: usize = 1 << 34;

/// How pictures are made alike.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ImageFolder {
    /// Scale every picture to this height and width; without it all must be of one size.
    pub resize: Option<[NonZeroU16; 2]>,
    /// Turn every picture into this; without it all must be grey or all in colour.
    pub channels: Option<Channels>,
    /// All classes there are; those that occur where it is left out.
    pub classes: Option<ClassNames>,
}

/// What a pixel holds. Transparency is always dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Channels {
    /// Brightness: one channel.
    Grey,
    /// Red, green, blue: three channels.
    Colour,
}

/// One decoded picture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Picture {
    /// Height, width, channels.
    pub shape: [usize; 3],
    /// One byte a value, channels last.
    pub pixels: Vec<u8>,
}

impl DataSet for ImageFolder {
    const ENTRY: Entry = Entry {
        name: "images",
        about: "your own pictures, in folders by client and class",
        kind: SampleKind::Images,
        partition: UsualPartition::NATURAL,
        places: &[""],
        layout: "<client>/<class>/*.png, .jpg, .jpeg, .bmp, .pbm, .pgm, .ppm, all of one size or with `resize`",
        licence: "your own",
        citation: "your own",
    };

    /// Reads every picture below `root`.
    fn load(&self, root: &Path) -> Result<Dataset> {
        let found = Found::below(root)?;
        let (shape, pixels) = self.decode_all(&found.pictures)?;
        Ok(Dataset {
            name: ImageFolder::ENTRY.name.into(),
            samples: Samples::Images(Images { shape, pixels, white: 255, scaling: Scaling::identity(shape[2]) }),
            labels: found.classes.into_classes(&found.class_of, self.classes.as_ref())?,
            owners: Some(Owners { names: found.clients.into_names(), of: found.client_of }),
            test_start: None,
        })
    }

    fn description(&self) -> String {
        "pictures, in folders by class".into()
    }

    fn classes(&self) -> Option<&ClassNames> {
        self.classes.as_ref()
    }

    fn alike(&self, example: &Dataset) -> Self {
        let Samples::Images(images) = &example.samples else { return self.clone() };
        let reader = Self::for_shape(images.shape).unwrap_or_else(|| self.clone());
        Self { classes: ClassNames::of(example), ..reader }
    }
}

impl ImageFolder {
    /// A reader that makes pictures of this shape (height, width, channels); nothing if there are no such pictures.
    pub fn for_shape([height, width, channels]: [usize; 3]) -> Option<Self> {
        let side = |length: usize| u16::try_from(length).ok().and_then(NonZeroU16::new);
        let channels = match channels {
            1 => Channels::Grey,
            3 => Channels::Colour,
            _ => return None,
        };
        Some(Self { resize: Some([side(height)?, side(width)?]), channels: Some(channels), classes: None })
    }

    /// Decodes one picture; the format is told from its first bytes.
    pub fn decode(&self, input: impl BufRead + Seek, file: &Path) -> Result<Picture> {
        self.check()?;
        let mut reader = ImageReader::new(input).with_guessed_format().map_err(Error::io(file, "read it"))?;
        reader.limits(limits());
        let picture = reader.decode().map_err(|error| undecodable(file, error))?;
        Ok(self.prepare(picture))
    }

    fn check(&self) -> Result<()> {
        match self.resize {
            Some(size) if size.iter().any(|side| u32::from(side.get()) > LONGEST_SIDE) => {
                let problem = format!("`resize = {size:?}` asks for more than {LONGEST_SIDE} pixels a side");
                Err(Error::unmeetable(problem, "ask for smaller pictures"))
            }
            _ => Ok(()),
        }
    }

    fn prepare(&self, mut picture: DynamicImage) -> Picture {
        if let Some([height, width]) = self.resize {
            picture = picture.resize_exact(width.get().into(), height.get().into(), FilterType::Triangle);
        }
        let (height, width) = (picture.height() as usize, picture.width() as usize);
        let own = if picture.color().has_color() { Channels::Colour } else { Channels::Grey };
        match self.channels.unwrap_or(own) {
            Channels::Grey => Picture { shape: [height, width, 1], pixels: picture.into_luma8().into_raw() },
            Channels::Colour => Picture { shape: [height, width, 3], pixels: picture.into_rgb8().into_raw() },
        }
    }

    /// Decodes in parallel and joins in order; the first picture decides the shape.
    pub(super) fn decode_all(&self, files: &[PathBuf]) -> Result<([usize; 3], Vec<u8>)> {
        let model = files.first().ok_or_else(|| Error::unmeetable("there are no pictures", EXPECTED))?;
        let shape = self.decode(locate::open(model)?, model)?.shape;
        let each: usize = shape.iter().product();
        ensure_room(files.len(), each)?;
        let decode = |file: &PathBuf| {
            let picture = self.decode(locate::open(file)?, file)?;
            if picture.shape == shape { Ok(picture.pixels) } else { Err(differs(file, picture.shape, model, shape)) }
        };
        let mut pixels = Vec::new();
        for block in files.chunks((BLOCK_BYTES / each.max(1)).clamp(1, BLOCK)) {
            for picture in block.par_iter().map(decode).collect::<Vec<_>>() {
                pixels.extend_from_slice(&picture?);
            }
        }
        Ok((shape, pixels))
    }
}

/// The pictures below a folder, and whose and what they are.
#[derive(Default)]
struct Found {
    clients: Roster,
    classes: Roster,
    pictures: Vec<PathBuf>,
    client_of: Vec<u32>,
    class_of: Vec<u32>,
}

impl Found {
    fn below(root: &Path) -> Result<Self> {
        let mut found = Self::default();
        for folder in locate::children(root)? {
            let client = found.clients.number(name_of_folder(&folder)?);
            found.add_client(client, &folder)?;
        }
        match found.pictures.is_empty() {
            true => Err(Error::malformed(root, Place::Whole, "there are no pictures in it", EXPECTED)),
            false => Ok(found),
        }
    }

    fn add_client(&mut self, client: u32, folder: &Path) -> Result<()> {
        let before = self.pictures.len();
        for class_folder in locate::children(folder)? {
            let class = self.classes.number(name_of_folder(&class_folder)?);
            for picture in locate::children(&class_folder)? {
                check_format(&picture)?;
                self.pictures.push(picture);
                self.class_of.push(class);
                self.client_of.push(client);
            }
        }
        match self.pictures.len() == before {
            true => Err(Error::malformed(folder, Place::Whole, "the client has no pictures", "add some, or remove the folder")),
            false => Ok(()),
        }
    }
}

fn name_of_folder(path: &Path) -> Result<&str> {
    if !path.is_dir() {
        return Err(Error::malformed(path, Place::Whole, "is a file where a folder is expected", EXPECTED));
    }
    let name = path.file_name().and_then(|name| name.to_str());
    name.ok_or_else(|| Error::malformed(path, Place::Whole, "the name is not UTF-8", "rename the folder"))
}

fn check_format(path: &Path) -> Result<()> {
    let extension = path.extension().unwrap_or_default().to_string_lossy().to_lowercase();
    if path.is_file() && FORMATS.contains(&extension.as_str()) {
        return Ok(());
    }
    let problem = format!("is not a picture in one of the formats {}", FORMATS.join(", "));
    Err(Error::malformed(path, Place::Whole, problem, "convert it, or move it elsewhere"))
}

/// Refuses more pixels than can be held, before they are decoded.
fn ensure_room(pictures: usize, each: usize) -> Result<()> {
    if pictures.checked_mul(each).is_some_and(|bytes| bytes <= MOST_PIXELS) {
        return Ok(());
    }
    let problem = format!("`{pictures}` pictures of `{each}` bytes each are more than `{MOST_PIXELS}` bytes in all");
    Err(Error::unmeetable(problem, "ask for smaller pictures with `resize`, such as `resize = [64, 64]`, or for fewer pictures"))
}

fn limits() -> Limits {
    let mut limits = Limits::default();
    limits.max_image_width = Some(LONGEST_SIDE);
    limits.max_image_height = Some(LONGEST_SIDE);
    limits.max_alloc = Some(MOST_BYTES);
    limits
}

fn undecodable(file: &Path, error: ImageError) -> Error {
    match error {
        ImageError::IoError(error) if error.kind() != std::io::ErrorKind::UnexpectedEof => Error::io(file, "read it")(error),
        ImageError::Limits(_) => {
            let problem = format!("the picture is larger than {LONGEST_SIDE} pixels a side or {MOST_BYTES} bytes");
            Error::malformed(file, Place::Whole, problem, "make it smaller")
        }
        error => {
            Error::malformed(file, Place::Whole, format!("cannot be decoded: {error}"), "save the picture again, or remove it")
        }
    }
}

fn differs(file: &Path, [height, width, channels]: [usize; 3], model: &Path, [h, w, c]: [usize; 3]) -> Error {
    let problem =
        format!("is `{height}x{width}` with {}, but `{}` is {h}x{w} with {c}", counted(channels, "channel"), model.display());
    let remedy = match channels == c {
        true => "say to which size all are to be scaled: `resize = [height, width]`",
        false => "say what all are to be turned into: `channels = \"grey\"` or `channels = \"colour\"`",
    };
    Error::malformed(file, Place::Whole, problem, remedy)
}
