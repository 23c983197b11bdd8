//! A data set that lives on the device.
use fedeq_core::{Error, Result};
use fedeq_data::shard::PictureChange;
use fedeq_data::{Dataset, Images, Labels, Samples};
use fedeq_models::graph::{Graph, Shape};
use half::f16;

use crate::device::{Buffer, Device, Launch, Pointer, launch};
use crate::op::{PassContext, PictureChanges};

/// All samples and their labels on the device: batches are gathered there, by index.
#[derive(Debug)]
pub(crate) struct DeviceData {
    name: String,
    inputs: Inputs,
    /// One a sample, or one a position of every text.
    labels: Buffer<i32>,
    largest_label: i32,
}

#[derive(Debug)]
enum Inputs {
    /// `[samples][height][width][channels]` bytes that stand for `(byte / white - mean) / deviation`, the latter two by channel.
    Images { bytes: Buffer<u8>, mean: Buffer<f32>, deviation: Buffer<f32>, white: f32, shape: [usize; 3] },
    /// `[samples][width]`
    Vectors { values: Buffer<f32>, width: usize },
    /// `[samples][length]`, 0 for padding.
    Texts { symbols: Buffer<i32>, length: usize, largest: i32 },
}

impl DeviceData {
    /// A copy of a data set.
    pub(crate) fn new(device: &Device, data: &Dataset) -> Result<Self> {
        let labels: Vec<i32> = match &data.labels {
            Labels::Classes { values, .. } => values.iter().map(|&class| i32::from(class)).collect(),
            Labels::NextSymbols(symbols) => symbols.iter().map(|&symbol| i32::from(symbol)).collect(),
        };
        Ok(Self {
            name: data.name.clone(),
            inputs: Inputs::new(device, &data.samples)?,
            largest_label: labels.iter().copied().max().unwrap_or(0),
            labels: Buffer::of(device, &labels)?,
        })
    }

    /// The bytes it takes on the device.
    pub(crate) fn bytes(&self) -> u64 {
        let inputs = match &self.inputs {
            Inputs::Images { bytes, mean, deviation, .. } => bytes.bytes() + mean.bytes() + deviation.bytes(),
            Inputs::Vectors { values, .. } => values.bytes(),
            Inputs::Texts { symbols, .. } => symbols.bytes(),
        };
        inputs + self.labels.bytes()
    }

    /// Refuses a network for other data: kernels look nothing up that is not there.
    pub(crate) fn ensure_fits(&self, graph: &Graph) -> Result<()> {
        let (fits, text) = match (&self.inputs, graph.shape(graph.input())) {
            (Inputs::Images { shape, .. }, Shape::Image(expected)) => (*shape == expected, false),
            (Inputs::Vectors { width, .. }, Shape::Vector(expected)) => (*width == expected, false),
            (Inputs::Texts { length, .. }, Shape::Symbols) => (*length <= graph.longest(), true),
            _ => (false, false),
        };
        let name = &self.name;
        if !fits {
            let problem = format!("the samples of `{name}` do not fit a network for {}", graph.task.input);
            return Err(Error::invalid(problem, "build the network for the task of this data set"));
        }
        let most =
            if let Inputs::Texts { largest, .. } = self.inputs { largest.max(self.largest_label) } else { self.largest_label };
        if most as usize >= graph.task.classes {
            let what = if text { "symbol" } else { "class" };
            let problem = format!("the {what} `{most}` of `{name}` is not below {}", graph.task.classes);
            return Err(Error::invalid(
                problem,
                format!("use data whose {what} numbers are from 0 to {}", graph.task.classes - 1),
            ));
        }
        Ok(())
    }

    /// The length of texts, which a plan for them must have; 1 for other samples.
    pub(crate) fn length(&self) -> usize {
        if let Inputs::Texts { length, .. } = self.inputs { length } else { 1 }
    }

    /// The symbols of all texts; null for other samples.
    pub(crate) fn symbols(&self) -> Pointer<i32> {
        if let Inputs::Texts { symbols, .. } = &self.inputs { symbols.pointer() } else { Pointer::NULL }
    }

    /// The labels of all samples.
    pub(crate) fn labels(&self) -> Pointer<i32> {
        self.labels.pointer()
    }

    /// Writes the samples of a batch as numbers, in 32 bits and in 16, either of which may be null. Texts are looked up where they are.
    pub(crate) fn gather(&self, run: &PassContext<'_>, numbers: Pointer<f32>, halves: Pointer<f16>) -> Result<()> {
        match &self.inputs {
            Inputs::Images { bytes, mean, deviation, white, shape: [height, width, channels] } => {
                let (pixels, padded) = (height * width, channels.next_multiple_of(8));
                let (mean, deviation) = (mean.pointer(), deviation.pointer());
                let grid = run.by_sample((pixels * padded).div_ceil(256));
                let [height, width, pixels, channels, padded] = [*height, *width, pixels, *channels, padded].map(|n| n as i32);
                if let Some(PictureChanges { step, table }) = run.changes {
                    let kernel = Launch::new("changed_images", grid, 256);
                    return launch!(run.device, kernel; bytes.pointer(), run.indices, step, table, mean, deviation, numbers, halves, run.cohort, *white, height, width, channels, padded);
                }
                launch!(run.device, Launch::new("images", grid, 256); bytes.pointer(), run.indices, mean, deviation, numbers, halves, run.cohort, *white, pixels, channels, padded)
            }
            Inputs::Vectors { values, width } => {
                let kernel = Launch::new("vectors", run.by_sample(width.div_ceil(256)), 256);
                launch!(run.device, kernel; values.pointer(), run.indices, numbers, run.cohort, *width as i32)
            }
            Inputs::Texts { .. } => Ok(()),
        }
    }
}

/// A picture's change in one number, as kernels know it: its moves are at most 10,000 pixels.
pub(crate) fn packed(change: PictureChange) -> i32 {
    let [down, right] = change.by.map(|by| by as i32 + 16_384);
    down << 16 | right << 1 | i32::from(change.mirrored)
}

impl Inputs {
    fn new(device: &Device, samples: &Samples) -> Result<Self> {
        Ok(match samples {
            Samples::Images(Images { shape, pixels, white, scaling }) => Self::Images {
                bytes: Buffer::of(device, pixels)?,
                mean: Buffer::of(device, &scaling.mean)?,
                deviation: Buffer::of(device, &scaling.deviation)?,
                white: f32::from(*white),
                shape: *shape,
            },
            Samples::Vectors(vectors) => Self::Vectors { values: Buffer::of(device, &vectors.values)?, width: vectors.width },
            Samples::Sequences(sequences) => {
                let symbols: Vec<i32> = sequences.symbols.iter().map(|&symbol| i32::from(symbol)).collect();
                let largest = symbols.iter().copied().max().unwrap_or(0);
                Self::Texts { symbols: Buffer::of(device, &symbols)?, length: sequences.length, largest }
            }
        })
    }
}
