//! A figure as SVG, as a part of an HTML page and as PNG.
use std::fs;
use std::io::{self, Cursor};
use std::path::{Path, PathBuf};

use fedeq_core::{Error, Result, write_atomically};
use image::{ImageFormat, RgbImage, imageops};
use plotters::prelude::*;

use super::Figure;
use super::bitmap::Bitmap;
use super::palette::{hex, variables};
use super::sheet::{SCALE, Sheet};
use super::text::prepare;
use crate::html::escaped;

/// Pixels of a PNG in a pixel of the figure: enough for print and fine screens.
const SHARPNESS: u32 = 2;

/// The style sheet of a page that holds figures: their colours in light and in dark, and on paper.
pub const STYLE: &str = include_str!("figure.css");

impl Figure {
    /// The text of an SVG file, on white.
    pub fn svg(&self) -> Result<String> {
        self.drawn(&Sheet::of(self))
    }

    /// A `<figure>` for an HTML page whose style sheet holds the [`STYLE`]; it follows the page in light and dark.
    pub fn html(&self) -> Result<String> {
        let svg = variables().fold(self.drawn(&Sheet::bare(self))?, |svg, (name, colour)| {
            svg.replace(&format!("\"{}\"", hex(colour)), &format!("\"var(--{name})\""))
        });
        let note = if self.note.is_empty() { String::new() } else { format!("<p>{}</p>\n", escaped(&self.note)) };
        // Panels side by side would be too small beside another figure.
        let class = if self.panels.len() > 1 { " class=\"panels\"" } else { "" };
        Ok(format!("<figure{class}>\n<figcaption>{}</figcaption>\n{svg}{note}</figure>\n", escaped(&self.title)))
    }

    /// The bytes of a PNG file, on white.
    pub fn png(&self) -> Result<Vec<u8>> {
        self.bitmap().map_err(Error::io(Path::new(&self.name), "draw it"))
    }

    /// Writes the figure as `name.svg` and `name.png` into a folder, which is made if need be; returns where.
    pub fn save(&self, folder: &Path) -> Result<[PathBuf; 2]> {
        fs::create_dir_all(folder).map_err(Error::io(folder, "create it"))?;
        let paths = ["svg", "png"].map(|ending| folder.join(format!("{}.{ending}", self.name)));
        write_atomically(&paths[0], self.svg()?.as_bytes())?;
        write_atomically(&paths[1], &self.png()?)?;
        Ok(paths)
    }

    fn drawn(&self, sheet: &Sheet<'_>) -> Result<String> {
        prepare();
        let size = sheet.size();
        let mut text = String::new();
        {
            let root = SVGBackend::with_string(&mut text, size).into_drawing_area();
            let drawn = sheet.draw(&root).and_then(|()| root.present());
            drawn.map_err(|error| Error::io(Path::new(&self.name), "draw it")(io::Error::other(error.to_string())))?;
        }
        let (_, body) = text.split_once('\n').unwrap_or_default();
        Ok(format!("{}\n{body}", self.opening(size)))
    }

    /// plotters' own opening tag says nothing to people who cannot see, and its width is in units of the drawing area.
    fn opening(&self, (width, height): (u32, u32)) -> String {
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{}\" height=\"{}\" viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"{}\">",
            width / SCALE,
            height / SCALE,
            escaped(&self.title)
        )
    }

    fn bitmap(&self) -> io::Result<Vec<u8>> {
        prepare();
        let sheet = Sheet::of(self);
        let (width, height) = sheet.size();
        let mut pixels = RgbImage::new(width, height);
        {
            let root = Bitmap(BitMapBackend::with_buffer(&mut pixels, (width, height))).into_drawing_area();
            sheet.draw(&root).and_then(|()| root.present()).map_err(|error| io::Error::other(error.to_string()))?;
        }
        // Drawn larger than it is wanted and averaged: edges become smooth.
        let small = imageops::thumbnail(&pixels, width * SHARPNESS / SCALE, height * SHARPNESS / SCALE);
        let mut bytes = Cursor::new(Vec::new());
        small.write_to(&mut bytes, ImageFormat::Png).map_err(io::Error::other)?;
        Ok(bytes.into_inner())
    }
}
