//! Data made harder on purpose: wrong labels, and pictures that look different from client to client.
use rand::RngExt;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::partition::ClientSplits;
use crate::{Dataset, Error, Images, Labels, Result, Samples, Seed};

/// How the pictures of clients differ: each client draws an angle and a tint, which all its samples have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct FeatureShift {
    /// Pictures are turned about their middle by at most this many degrees, to either side.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 180.0), extend("exclusiveMinimum" = 0))]
    pub rotation: Option<f64>,
    /// Every channel is made lighter or darker by up to this share: 0.3 multiplies by a number from 0.7 to 1.3.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 1.0), extend("exclusiveMinimum" = 0))]
    pub colour: Option<f64>,
}

impl FeatureShift {
    /// Refuses settings that mean nothing.
    pub fn validate(&self) -> Result<()> {
        if self.rotation.is_none() && self.colour.is_none() {
            return Err(Error::unmeetable("`data.shift` says neither `rotation` nor `colour`", "give at least one of them"));
        }
        for (name, value, most) in [("rotation", self.rotation, 180.0), ("colour", self.colour, 1.0)] {
            if let Some(value) = value.filter(|value| !(*value > 0.0 && *value <= most)) {
                let problem = format!("`data.shift.{name}` is `{value}`");
                return Err(Error::unmeetable(problem, format!("give a number above 0 and at most {most}")));
            }
        }
        Ok(())
    }
}

impl Dataset {
    /// The same with the pictures of every client turned and tinted its own way: training, validation and test samples alike.
    pub fn shifted(&self, splits: &ClientSplits, shift: &FeatureShift, seed: Seed) -> Result<Self> {
        shift.validate()?;
        let Samples::Images(images) = &self.samples else {
            let problem = format!("`data.shift` turns and tints pictures, and `{}` has none", self.name);
            return Err(Error::unmeetable(problem, "leave it out, or choose pictures"));
        };
        let mut changed = images.clone();
        for (client, indices) in splits.clients.iter().chain(&splits.unseen).enumerate() {
            let appearance = Appearance::drawn(shift, images.shape[2], seed.derive("shift", [client as u64]));
            for &sample in indices.train.iter().chain(&indices.validation).chain(&indices.test) {
                appearance.apply(images, &mut changed, sample as usize);
            }
        }
        Ok(Self { samples: Samples::Images(changed), ..self.clone() })
    }

    /// The same with a share of the clients' training samples under another class, drawn for each sample on its own.
    pub fn with_label_noise(&self, splits: &ClientSplits, share: f64, seed: Seed) -> Result<Self> {
        if !(share > 0.0 && share <= 1.0) {
            return Err(Error::unmeetable(format!("`data.label_noise` is `{share}`"), "give a share above 0 and at most 1"));
        }
        let Labels::Classes { names, values } = &self.labels else {
            let problem = format!("`data.label_noise` changes classes, and samples of `{}` have none", self.name);
            return Err(Error::unmeetable(problem, "leave it out, or choose data with classes"));
        };
        let Some(others) = (names.len() as u16).checked_sub(1).filter(|others| *others > 0) else {
            return Err(Error::unmeetable("`data.label_noise` needs two classes at least", "leave it out"));
        };
        let mut values = values.clone();
        for &sample in splits.clients.iter().chain(&splits.unseen).flat_map(|client| &client.train) {
            let mut rng = seed.derive("label noise", [sample.into()]).rng();
            if rng.random::<f64>() < share {
                let class = &mut values[sample as usize];
                // Any class but its own.
                let other = rng.random_range(0..others);
                *class = if other < *class { other } else { other + 1 };
            }
        }
        Ok(Self { labels: Labels::Classes { names: names.clone(), values }, ..self.clone() })
    }
}

/// How the pictures of one client appearance.
struct Appearance {
    /// Sine and cosine of the angle.
    turn: Option<[f64; 2]>,
    /// What each channel is multiplied by.
    gains: Vec<f64>,
}

impl Appearance {
    fn drawn(shift: &FeatureShift, channels: usize, seed: Seed) -> Self {
        let mut rng = seed.rng();
        let mut between = |size: f64| (2.0 * rng.random::<f64>() - 1.0) * size;
        let turn = shift.rotation.map(|degrees| {
            let angle = between(degrees).to_radians();
            [libm::sin(angle), libm::cos(angle)]
        });
        let gains = shift.colour.map_or(Vec::new(), |size| (0..channels).map(|_| 1.0 + between(size)).collect());
        Self { turn, gains }
    }

    fn apply(&self, from: &Images, to: &mut Images, sample: usize) {
        let [height, width, channels] = from.shape;
        let each = height * width * channels;
        let (old, new) = (&from.pixels[sample * each..][..each], &mut to.pixels[sample * each..][..each]);
        for (at, pixel) in new.chunks_exact_mut(channels).enumerate() {
            let place = [(at / width) as f64, (at % width) as f64];
            for (channel, value) in pixel.iter_mut().enumerate() {
                let mut seen = self.turn.map_or(f64::from(old[at * channels + channel]), |turn| {
                    sampled(old, from.shape, channel, turned(place, turn, [height, width]))
                });
                seen *= self.gains.get(channel).copied().unwrap_or(1.0);
                *value = seen.round().clamp(0.0, f64::from(from.white)) as u8;
            }
        }
    }
}

/// Where a place of the turned picture was in the picture.
fn turned([row, column]: [f64; 2], [sine, cosine]: [f64; 2], [height, width]: [usize; 2]) -> [f64; 2] {
    let middle = [(height as f64 - 1.0) / 2.0, (width as f64 - 1.0) / 2.0];
    let (down, right) = (row - middle[0], column - middle[1]);
    [middle[0] + cosine * down - sine * right, middle[1] + sine * down + cosine * right]
}

/// What a picture shows between its pixels, from the four around the place; black outside.
fn sampled(pixels: &[u8], [height, width, channels]: [usize; 3], channel: usize, [row, column]: [f64; 2]) -> f64 {
    let (top, left) = (row.floor(), column.floor());
    let mut sum = 0.0;
    for (down, right) in [(0.0, 0.0), (0.0, 1.0), (1.0, 0.0), (1.0, 1.0)] {
        let (y, x) = (top + down, left + right);
        let weight = (1.0 - (row - y).abs()) * (1.0 - (column - x).abs());
        if (0.0..height as f64).contains(&y) && (0.0..width as f64).contains(&x) {
            sum += weight * f64::from(pixels[(y as usize * width + x as usize) * channels + channel]);
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::partition::ClientIndices;
    use crate::{Scaling, Vectors};

    fn pictures(count: usize) -> Dataset {
        let shape = [5, 5, 3];
        let pixels = (0..count * 75).map(|at| ((at * 37 + at / 75 * 11) % 150) as u8).collect();
        let images = Images { shape, pixels, white: 255, scaling: Scaling::identity(3) };
        let names = ["a", "b", "c", "d"].map(str::to_owned).to_vec();
        let labels = Labels::Classes { names, values: (0..count).map(|at| (at % 4) as u16).collect() };
        Dataset { name: "pictures".into(), samples: Samples::Images(images), labels, owners: None, test_start: None }
    }

    fn splits(clients: usize, each: u32) -> ClientSplits {
        let client = |number: usize| {
            let first = number as u32 * each;
            let half = first + each / 2;
            ClientIndices {
                name: number.to_string(),
                train: (first..half).collect(),
                validation: vec![],
                test: (half..first + each).collect(),
            }
        };
        ClientSplits { clients: (0..clients).map(client).collect(), unseen: Vec::new() }
    }

    fn pixels(dataset: &Dataset) -> &[u8] {
        match &dataset.samples {
            Samples::Images(images) => &images.pixels,
            _ => panic!("pictures"),
        }
    }

    #[test]
    fn a_quarter_turn_puts_rows_in_the_place_of_columns() {
        let dataset = pictures(1);
        let Samples::Images(images) = &dataset.samples else { panic!("pictures") };
        let mut changed = images.clone();
        Appearance { turn: Some([1.0, 0.0]), gains: vec![] }.apply(images, &mut changed, 0);
        let at = |pixels: &[u8], row: usize, column: usize| pixels[(row * 5 + column) * 3 + 1];
        for (row, column) in (0..5).flat_map(|row| (0..5).map(move |column| (row, column))) {
            assert_eq!(at(&changed.pixels, row, column), at(&images.pixels, 4 - column, row));
        }
    }

    #[test]
    fn every_client_has_its_own_appearance_for_all_its_samples() {
        let dataset = pictures(12);
        let shift = FeatureShift { rotation: None, colour: Some(0.5) };
        let shifted = dataset.shifted(&splits(3, 4), &shift, Seed::new(1)).expect("pictures");
        let ratio = |sample: usize, channel: usize| {
            let at =
                (0..25).map(|pixel| sample * 75 + pixel * 3 + channel).max_by_key(|&at| pixels(&dataset)[at]).expect("pixels");
            f64::from(pixels(&shifted)[at]) / f64::from(pixels(&dataset)[at])
        };
        for client in 0..3 {
            let own: Vec<f64> = (0..4).map(|sample| ratio(client * 4 + sample, 0)).collect();
            assert!(own.iter().all(|other| (other - own[0]).abs() < 0.02), "{own:?}");
        }
        assert!((ratio(0, 0) - ratio(4, 0)).abs() > 0.02 && (ratio(0, 0) - ratio(0, 1)).abs() > 0.02);
        assert_eq!(shifted.labels, dataset.labels);
        let turned = FeatureShift { rotation: Some(90.0), colour: None };
        let again = || dataset.shifted(&splits(3, 4), &turned, Seed::new(1)).expect("pictures");
        assert_eq!(again(), again());
        assert_ne!(pixels(&again()), pixels(&dataset));
    }

    #[test]
    fn so_many_training_labels_become_others_and_no_test_label_does() {
        let (dataset, splits) = (pictures(2000), splits(10, 200));
        let noisy = dataset.with_label_noise(&splits, 0.3, Seed::new(5)).expect("classes");
        let differs = |sample: &&u32| {
            noisy.classes().expect("classes")[**sample as usize] != dataset.classes().expect("classes")[**sample as usize]
        };
        let count = |of: fn(&ClientIndices) -> &Vec<u32>| splits.clients.iter().flat_map(of).filter(differs).count();
        let changed = count(|client| &client.train);
        assert!((240..360).contains(&changed), "{changed} of 1,000");
        assert_eq!(count(|client| &client.test), 0);
        assert!(noisy.classes().expect("classes").iter().all(|class| *class < 4));
        let all = dataset.with_label_noise(&splits, 1.0, Seed::new(5)).expect("classes");
        assert!(
            splits
                .clients
                .iter()
                .flat_map(|client| &client.train)
                .all(|&at| all.classes().expect("classes")[at as usize] != dataset.classes().expect("classes")[at as usize])
        );
    }

    #[test]
    fn what_cannot_be_changed_is_refused_by_name() {
        let pictures = pictures(4);
        let numbers = Dataset { samples: Samples::Vectors(Vectors { width: 1, values: vec![0.0; 4] }), ..pictures.clone() };
        let shift = FeatureShift { rotation: Some(20.0), colour: None };
        let refused = |result: Result<Dataset>, words: &str| {
            let error = result.expect_err("refused").to_string();
            assert!(error.contains(words), "{error}");
        };
        refused(numbers.shifted(&splits(1, 4), &shift, Seed::new(1)), "data.shift");
        refused(pictures.shifted(&splits(1, 4), &FeatureShift::default(), Seed::new(1)), "neither");
        for (rotation, colour) in [(Some(0.0), None), (Some(f64::NAN), None), (None, Some(1.5)), (Some(181.0), None)] {
            refused(pictures.shifted(&splits(1, 4), &FeatureShift { rotation, colour }, Seed::new(1)), "data.shift.");
        }
        for share in [0.0, 1.5, f64::NAN] {
            refused(pictures.with_label_noise(&splits(1, 4), share, Seed::new(1)), "data.label_noise");
        }
        let text = Dataset { labels: Labels::NextSymbols(vec![1; 4]), ..numbers };
        refused(text.with_label_noise(&splits(1, 4), 0.5, Seed::new(1)), "data.label_noise");
    }
}
