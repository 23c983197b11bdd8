//! Pictures changed by chance.
use std::num::NonZeroUsize;
use std::sync::Arc;

use fedeq_core::Trains;
use fedeq_data::Seed;
use fedeq_data::shard::{Augmentation, Inputs, Shard};
use fedeq_models::{Mode, ModelConfig, Task};

use super::{Client, dataset, place};
use crate::data::{DeviceData, packed};
use crate::device::{Buffer, Device, Pointer};
use crate::executor::{Executor, Lanes};
use crate::layout::Layout;
use crate::op::{PassContext, PictureChanges};
use crate::plan::{Precision, Purpose, Size};

#[test]
#[ignore = "needs a GPU"]
fn changed_pictures_are_the_cpus_to_the_bit() {
    let device = Device::new(0).expect("a GPU");
    let sizes = [5, 0, 8];
    for (task, crop, flip) in [
        (Task::image(9, 11, 3, 10), Some(4), true),
        (Task::image(8, 8, 1, 10), None, true),
        (Task::image(8, 6, 1, 10), Some(2), false),
    ] {
        let graph = "resnet-xs".parse::<ModelConfig>().expect("known").graph(&task).expect("fits");
        let layout = Layout::new(&graph, Precision::Exact);
        let data = Arc::new(dataset(&graph, sizes.iter().sum()));
        let on_device = DeviceData::new(&device, &data).expect("the data set on the device");
        let first = |lane: usize| sizes[..lane].iter().sum::<usize>() as u32;
        let client = |lane: usize| Client {
            weights: fedeq_core::Weights::default(),
            seed: 0,
            indices: (first(lane)..first(lane) + sizes[lane] as u32).rev().collect(),
        };
        let clients: Vec<Client> = (0..sizes.len()).map(client).collect();
        let size = Size { lanes: sizes.len(), most: 8, length: 1 };
        let purpose =
            Purpose { size, mode: Mode::Train, precision: Precision::Exact, trains: Some(Trains::Everything), contrasts: false };
        let mut executor = Executor::new(&device, &graph, &layout, purpose).expect("a plan");
        place(&device, &mut executor, &clients);
        let (augment, seed) = (Augmentation { crop, flip }, |lane: usize| Seed::new(lane as u64));
        let change = |(lane, client): (usize, &Client)| {
            let here =
                client.indices.iter().map(|&index| packed(augment.change(seed(lane), u64::from(index)))).collect::<Vec<_>>();
            here.into_iter().chain(std::iter::repeat(0)).take(size.most).collect::<Vec<i32>>()
        };
        // Those of the second of two steps.
        let changes =
            std::iter::repeat_n(0, size.samples()).chain(clients.iter().enumerate().flat_map(change)).collect::<Vec<_>>();
        let (table, step) = (Buffer::of(&device, &changes).expect("changes"), Buffer::of(&device, &[1]).expect("a step"));
        let nothing = Lanes { parameters: Pointer::NULL, gradients: Pointer::NULL, statistics: Pointer::NULL };
        let changes = Some(PictureChanges { step: step.pointer(), table: table.pointer() });
        let run = PassContext { changes, ..executor.run(&layout, nothing, Pointer::NULL) };
        executor.load(&run, &on_device).expect("load");
        let slot = executor.plan.input.numbers.expect("numbers");
        let each: usize = graph.shape(graph.input()).count(1);
        let found = executor.numbers(slot, size.samples() * each).expect("numbers");
        for (lane, client) in clients.iter().enumerate().filter(|(_, client)| !client.indices.is_empty()) {
            let shard = Shard::new(Arc::clone(&data), client.indices.clone()).expect("samples of the data set");
            let all = NonZeroUsize::new(client.indices.len()).expect("some");
            let batch = shard.in_order(all).augmented(augment, seed(lane)).next().expect("a batch");
            let Inputs::Dense { values, .. } = &batch.inputs else { panic!("pictures") };
            let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
            assert!(bits(values) == bits(&found[lane * size.most * each..][..values.len()]), "lane {lane}, {augment:?}");
        }
    }
}
