//! A figure as SVG and as PNG: drawn once, as SVG, which resvg makes pixels of.
use std::fs;
use std::path::{Path, PathBuf};

use fedeq_core::{Error, Result, write_atomically};

use super::Figure;
use super::sheet::Sheet;
use crate::drawing::{pixels, png};

/// Pixels of a PNG in a pixel of the figure: enough for print and fine screens.
const SHARPNESS: f32 = 2.0;

impl Figure {
    /// The text of an SVG file, on white.
    pub fn svg(&self) -> Result<String> {
        Ok(Sheet::of(self).svg())
    }

    /// The bytes of a PNG file, on white.
    pub fn png(&self) -> Result<Vec<u8>> {
        pixels(&self.svg()?, SHARPNESS).and_then(|image| png(&image)).map_err(Error::io(Path::new(&self.name), "draw it"))
    }

    /// Writes the figure as `name.svg` and `name.png` into a folder, which is made if need be; returns where.
    pub fn save(&self, folder: &Path) -> Result<[PathBuf; 2]> {
        fs::create_dir_all(folder).map_err(Error::io(folder, "create it"))?;
        let paths = ["svg", "png"].map(|ending| folder.join(format!("{}.{ending}", self.name)));
        write_atomically(&paths[0], self.svg()?.as_bytes())?;
        write_atomically(&paths[1], &self.png()?)?;
        Ok(paths)
    }
}
