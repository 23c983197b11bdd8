//! The pixels of an SVG, by resvg.
use std::io::{self, Cursor};
use std::sync::{Arc, LazyLock};

use image::{ImageFormat, Rgb, RgbImage};
use resvg::tiny_skia::{Pixmap, Transform};
use resvg::usvg::{Options, Tree, fontdb};

use super::letters::{BOLD, REGULAR};

/// The fonts that are part of the program, and no others: the same picture gives the same bytes everywhere.
static FONTS: LazyLock<Arc<fontdb::Database>> = LazyLock::new(|| {
    let mut fonts = fontdb::Database::new();
    [REGULAR, BOLD].into_iter().for_each(|font| fonts.load_font_data(font.to_vec()));
    Arc::new(fonts)
});

/// The pixels of an SVG, `sharpness` of them in a pixel of its own.
pub(crate) fn pixels(svg: &str, sharpness: f32) -> io::Result<RgbImage> {
    let options = Options { fontdb: Arc::clone(&FONTS), font_family: "DejaVu Sans".into(), ..Options::default() };
    let tree = Tree::from_str(svg, &options).map_err(io::Error::other)?;
    let [width, height] = [tree.size().width(), tree.size().height()].map(|length| (sharpness * length).ceil() as u32);
    let mut pixmap = Pixmap::new(width, height).ok_or_else(|| io::Error::other("it is too large"))?;
    resvg::render(&tree, Transform::from_scale(sharpness, sharpness), &mut pixmap.as_mut());
    // The paper is white and covers everything, so nothing is seen through.
    let pixel =
        |x: u32, y: u32| pixmap.pixel(x, y).map_or(Rgb([255; 3]), |pixel| Rgb([pixel.red(), pixel.green(), pixel.blue()]));
    Ok(RgbImage::from_fn(width, height, pixel))
}

/// The bytes of a PNG file.
pub(crate) fn png(image: &RgbImage) -> io::Result<Vec<u8>> {
    let mut bytes = Cursor::new(Vec::new());
    image.write_to(&mut bytes, ImageFormat::Png).map_err(io::Error::other)?;
    Ok(bytes.into_inner())
}
