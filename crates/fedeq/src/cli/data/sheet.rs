//! What a selection of samples looks like: pictures by class, or text by client.
use std::collections::BTreeMap;

use fedeq_data::source::vocabulary::{BEGIN, END, OTHER, character};
use fedeq_data::{Dataset, Images, Labels, Samples, Sequences};
use image::{Rgb, RgbImage};

use super::inspect::Selection;
use crate::cli::failure::{Failure, Outcome};
use fedeq_report::draw::{ContactRow, ContactSheet, DataPicture, Heading, Passage, TextSheet, contact_sheet, text_sheet};
use fedeq_run::number::{count, counted};

/// Pictures a class.
const COLUMNS: usize = 12;
/// Clients on a page of text, and lines of each.
const PASSAGES: usize = 8;
const LINES: usize = 6;
/// Lines where one client has the page to itself.
const LINES_ALONE: usize = 50;

/// Whether there is anything to see.
pub(super) fn is_drawable(dataset: &Dataset) -> bool {
    matches!(dataset.samples, Samples::Images(_)) || dataset.has_characters()
}

/// Draws what there is to see.
pub(super) fn draw(dataset: &Dataset, selection: &Selection, name: &str) -> Outcome<DataPicture> {
    match (&dataset.samples, &dataset.labels) {
        (Samples::Images(images), labels) => Ok(contact_sheet(&pictures(images, labels, selection, name))),
        (Samples::Sequences(_), _) if !dataset.has_characters() => Err(not_drawable(name)),
        (Samples::Sequences(sequences), _) => Ok(text_sheet(&passages(dataset, sequences, selection, name))),
        (Samples::Vectors(_), _) => Err(not_drawable(name)),
    }
}

/// The first sample alone: a picture as it is stored, so that a model can be asked about it; text as on a sheet.
pub(super) fn alone(dataset: &Dataset, selection: &Selection, name: &str) -> Outcome<DataPicture> {
    match (&dataset.samples, selection.samples.first()) {
        (Samples::Images(images), Some(sample)) => Ok(DataPicture::showing(picture(images, *sample))),
        _ => draw(dataset, selection, name),
    }
}

fn not_drawable(name: &str) -> Failure {
    Failure::request(
        format!("the samples of `{name}` are numbers, which cannot be shown as pictures"),
        format!("leave out `--out`, or draw who holds what with `fedeq data partition {name} --out FILE.png`"),
    )
}

/// One row a class that occurs, or a single row where there are no classes.
fn pictures(images: &Images, labels: &Labels, selection: &Selection, name: &str) -> ContactSheet {
    let mut by_class: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for &sample in &selection.samples {
        let class = if let Labels::Classes { values, .. } = labels { usize::from(values[sample]) } else { 0 };
        by_class.entry(class).or_default().push(sample);
    }
    let row = |(class, samples): (&usize, &Vec<usize>)| ContactRow {
        label: if let Labels::Classes { names, .. } = labels { names[*class].clone() } else { "all".into() },
        note: count(samples.len()),
        pictures: spread(samples, COLUMNS).map(|sample| picture(images, sample)).collect(),
    };
    let rows: Vec<ContactRow> = by_class.iter().map(row).collect();
    let [height, width, _] = images.shape;
    let subtitle = format!(
        "{} of {height} x {width} pixels in {}; beside each class, how many there are",
        counted(selection.samples.len(), "picture"),
        if rows.len() == 1 { "1 class".into() } else { format!("{} classes", count(rows.len())) },
    );
    let title = match &selection.client {
        Some(client) => format!("{name}, client {client}"),
        None => name.to_owned(),
    };
    ContactSheet { heading: Heading { title, subtitle }, rows }
}

/// At most `most` of the items, evenly spread from the first on.
fn spread<T: Copy>(items: &[T], most: usize) -> impl Iterator<Item = T> {
    let shown = items.len().min(most);
    (0..shown).map(move |index| items[index * items.len() / shown])
}

/// One sample as it is stored, grey or in colour.
fn picture(images: &Images, sample: usize) -> RgbImage {
    let [height, width, channels] = images.shape;
    let size = height * width * channels;
    let pixels = &images.pixels[sample * size..(sample + 1) * size];
    let bright = |value: u8| (u32::from(value) * 255 / u32::from(images.white.max(1))).min(255) as u8;
    RgbImage::from_fn(width as u32, height as u32, |x, y| {
        let start = (y as usize * width + x as usize) * channels;
        let pixel = &pixels[start..start + channels];
        match pixel {
            [red, green, blue, ..] => Rgb([bright(*red), bright(*green), bright(*blue)]),
            _ => Rgb([bright(pixel[0]); 3]),
        }
    })
}

/// Some clients with the beginning of what they wrote.
fn passages(dataset: &Dataset, sequences: &Sequences, selection: &Selection, set: &str) -> TextSheet {
    let mut by_client: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    for &sample in &selection.samples {
        let owner = dataset.owners.as_ref().map_or(0, |owners| owners.of[sample]);
        by_client.entry(owner).or_default().push(sample);
    }
    let clients: Vec<(u32, &Vec<usize>)> = by_client.iter().map(|(owner, samples)| (*owner, samples)).collect();
    let name = |owner: u32| dataset.owners.as_ref().map_or("all".into(), |owners| owners.names[owner as usize].clone());
    let passage = |(owner, samples): (u32, &Vec<usize>)| Passage {
        client: name(owner),
        note: counted(samples.len(), "chunk"),
        text: text(sequences, samples),
    };
    let lines = if clients.len() == 1 { LINES_ALONE } else { LINES };
    let passages: Vec<Passage> = spread(&clients, PASSAGES).map(passage).collect();
    let chunks = format!("{} of {} symbols", counted(selection.samples.len(), "chunk"), sequences.length);
    let subtitle = match clients.len() {
        1 => format!("{chunks}; the beginning"),
        all => format!("{} of {} clients and the beginning of their text; {chunks} in all", passages.len(), count(all)),
    };
    TextSheet { heading: Heading { title: set.to_owned(), subtitle }, passages, lines }
}

/// Enough of the text to fill a page; chunks continue each other.
fn text(sequences: &Sequences, samples: &[usize]) -> String {
    const ENOUGH: usize = 8_000;
    let length = sequences.length;
    let symbols = samples.iter().flat_map(|&sample| &sequences.symbols[sample * length..(sample + 1) * length]);
    let letters = symbols.take(ENOUGH).filter_map(|&symbol| match symbol {
        BEGIN | END => Some('\n'),
        OTHER => Some('\u{fffd}'),
        other => character(other).filter(|&letter| letter != '\r'),
    });
    letters.collect::<String>().trim_start().to_owned()
}
