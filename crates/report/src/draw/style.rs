//! The sizes and colours that all pictures share.
use image::Rgb;

/// Around every picture.
pub(super) const MARGIN: u32 = 48;

/// Background.
pub(super) const PAPER: Rgb<u8> = Rgb([255, 255, 255]);
/// Titles and labels.
pub(super) const INK: Rgb<u8> = Rgb([31, 41, 51]);
/// What is said beside.
pub(super) const GREY: Rgb<u8> = Rgb([107, 119, 133]);
/// Thin lines.
pub(super) const LINE: Rgb<u8> = Rgb([206, 212, 218]);
/// An empty cell.
pub(super) const EMPTY: Rgb<u8> = Rgb([241, 243, 245]);

/// Size of a title's letters: the font's em.
pub(super) const TITLE: u32 = 36;
/// Size of everything else.
pub(super) const TEXT: u32 = 23;
/// From one line of text to the next.
pub(super) const LEADING: u32 = 36;
