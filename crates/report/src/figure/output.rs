//! A figure as SVG and as PNG: drawn once, as SVG, which resvg makes pixels of.
use std::fs;
use std::io::{self, Cursor};
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

use fedeq_core::{Error, Result, write_atomically};
use image::{ImageFormat, Rgb, RgbImage};
use resvg::tiny_skia::{Pixmap, Transform};
use resvg::usvg::{Options, Tree, fontdb};

use super::Figure;
use super::sheet::Sheet;
use crate::draw::{BOLD, REGULAR};

/// Pixels of a PNG in a pixel of the figure: enough for print and fine screens.
const SHARPNESS: f32 = 2.0;

/// The fonts that are part of the program, and no others: the same figure gives the same bytes everywhere.
static FONTS: LazyLock<Arc<fontdb::Database>> = LazyLock::new(|| {
    let mut fonts = fontdb::Database::new();
    [REGULAR, BOLD].into_iter().for_each(|font| fonts.load_font_data(font.to_vec()));
    Arc::new(fonts)
});

impl Figure {
    /// The text of an SVG file, on white.
    pub fn svg(&self) -> Result<String> {
        Ok(Sheet::of(self).svg())
    }

    /// The bytes of a PNG file, on white.
    pub fn png(&self) -> Result<Vec<u8>> {
        pixels(&self.svg()?).map_err(Error::io(Path::new(&self.name), "draw it"))
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

/// The PNG of an SVG.
fn pixels(svg: &str) -> io::Result<Vec<u8>> {
    let options = Options { fontdb: Arc::clone(&FONTS), font_family: "DejaVu Sans".into(), ..Options::default() };
    let tree = Tree::from_str(svg, &options).map_err(io::Error::other)?;
    let [width, height] = [tree.size().width(), tree.size().height()].map(|length| (SHARPNESS * length).ceil() as u32);
    let mut pixmap = Pixmap::new(width, height).ok_or_else(|| io::Error::other("it is too large"))?;
    resvg::render(&tree, Transform::from_scale(SHARPNESS, SHARPNESS), &mut pixmap.as_mut());
    // The paper is white and covers everything, so nothing is seen through.
    let pixel =
        |x: u32, y: u32| pixmap.pixel(x, y).map_or(Rgb([255; 3]), |pixel| Rgb([pixel.red(), pixel.green(), pixel.blue()]));
    let mut bytes = Cursor::new(Vec::new());
    RgbImage::from_fn(width, height, pixel).write_to(&mut bytes, ImageFormat::Png).map_err(io::Error::other)?;
    Ok(bytes.into_inner())
}
