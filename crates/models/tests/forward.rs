//! How networks behave around a forward pass: seeds, modes, masks, starts, and inputs that do not fit.
use burn::module::Module;
use burn::tensor::{Device, Int, Tensor};
use fedeq_equilibrium::{Precision, Solver, Stop, WarmMemory, WarmStart};
use fedeq_models::store::{Metadata, to_bytes};
use fedeq_models::{
    Context, DeqResNetOptions, DeqTransformerOptions, Input, Mode, ModelConfig, Network, NormKind, Output, Part, ResNetOptions,
    Start, Task,
};

mod common;

fn run(network: &Network, input: &Input, context: &mut Context) -> Output {
    network.forward(input, context).expect("a fitting input")
}

fn evaluated(network: &Network, input: &Input) -> Output {
    run(network, input, &mut Context::evaluate(network.fresh_statistics()))
}

fn bytes(network: &Network) -> Vec<u8> {
    to_bytes(network, &network.fresh_statistics(), &Metadata::new()).expect("a sound network")
}

/// Sequences of the given symbols.
fn sequences<const B: usize, const T: usize>(symbols: [[i64; T]; B]) -> Input {
    Input::Symbols(Tensor::<2, Int>::from_data(symbols, &Device::default()))
}

#[test]
fn the_same_seed_gives_the_same_bytes_on_any_number_of_threads() {
    let device = Device::default();
    for name in ["deq-resnet-xs", "resnet-xs", "deq-mlp", "deq-transformer"] {
        let build = |seed| bytes(&common::build(name, &common::task_for(name), &device, seed));
        let expected = build(7);
        std::thread::scope(|scope| {
            let others: Vec<_> = (0..4).map(|_| scope.spawn(|| build(7))).collect();
            others.into_iter().for_each(|other| assert_eq!(other.join().expect("built"), expected, "{name}"));
        });
        assert_ne!(build(8), expected, "{name}");
    }
}

#[test]
fn networks_run_in_both_modes_on_three_samples() {
    let device = Device::default();
    for name in ModelConfig::NAMES.iter().filter(|name| !name.ends_with("34")) {
        let task = common::task_for(name);
        let network = common::build(name, &task, &device, 1);
        let input = common::batch(&task, &device);
        for mode in [Mode::Train, Mode::Evaluate] {
            let mut context = Context { mode, ..Context::evaluate(network.fresh_statistics()) };
            let output = run(&network, &input, &mut context);
            let rows = if name.contains("transformer") { 3 * 5 } else { 3 };
            assert_eq!(output.logits.dims(), [rows, task.classes], "{name}");
            assert_eq!(output.embedding.dims()[0], rows, "{name}");
            assert_eq!(output.equilibrium.is_some(), name.starts_with("deq-"), "{name}");
            assert_eq!(network.is_equilibrium(), name.starts_with("deq-"), "{name}");
            assert!(common::host(&output.logits).iter().all(|value| value.is_finite()), "{name}");
        }
    }
}

#[test]
fn personal_parameters_are_those_under_player() {
    let device = Device::default();
    let personal = |name| {
        let network = common::build(name, &common::task_for(name), &device, 0);
        let parameters = network.parameters().into_iter().filter(|parameter| parameter.part == Part::Personal);
        parameters.map(|parameter| parameter.path).collect::<Vec<_>>()
    };
    for name in ["mlp", "deq-mlp", "deq-resnet-xs", "resnet-xs", "resnet-14"] {
        assert_eq!(personal(name), ["player.weight", "player.bias"], "{name}");
    }
    assert_eq!(personal("linear"), [""; 0]);
    for name in ["transformer-4", "deq-transformer"] {
        let paths = personal(name);
        assert_eq!(paths.len(), 2 + 8 + 2 + 4 + 2 + 2, "{name}");
        assert_eq!(paths[paths.len() - 2..], ["player.output.weight", "player.output.bias"], "{name}");
    }
}

#[test]
fn training_moves_the_statistics_and_evaluation_does_not() {
    let device = Device::default();
    for name in ["deq-resnet-xs", "resnet-xs"] {
        let task = common::task_for(name);
        let network = common::build(name, &task, &device, 1);
        let input = common::batch(&task, &device);
        let mut context = Context::train(network.fresh_statistics(), 0);
        let layers = context.statistics.iter().count();
        run(&network, &input, &mut context);
        run(&network, &input, &mut context);
        assert!(context.statistics.iter().all(|(_, moments)| moments.steps == 2.0), "{name}");
        context.mode = Mode::Evaluate;
        run(&network, &input, &mut context);
        assert!(context.statistics.iter().all(|(_, moments)| moments.steps == 2.0), "{name}");
        assert_eq!(context.statistics.iter().count(), layers, "{name}: every layer was known from the start");
    }
}

#[test]
fn without_batch_normalisation_there_are_no_statistics_and_samples_do_not_see_each_other() {
    let device = Device::default();
    let task = Task::image(8, 8, 1, 10);
    let group = NormKind::Group;
    let configs = [
        ModelConfig::DeqResNetXs(DeqResNetOptions { norm: group, ..Default::default() }),
        ModelConfig::ResNetXs(ResNetOptions { norm: group, ..Default::default() }),
        ModelConfig::ResNet14(ResNetOptions { norm: group, ..Default::default() }),
    ];
    let Input::Image(images) = common::batch(&task, &device) else { unreachable!("images were asked for") };
    for config in configs {
        let network = config.build(&task, &device, 1).expect("fits");
        let mut context = Context::train(network.fresh_statistics(), 0);
        let together = run(&network, &Input::Image(images.clone()), &mut context);
        let alone = run(&network, &Input::Image(images.clone().narrow(0, 1, 1)), &mut context);
        assert_eq!(context.statistics.count(), 0, "{config}");
        let expected = common::host(&together.logits.narrow(0, 1, 1));
        for (found, expected) in common::host(&alone.logits).into_iter().zip(expected) {
            assert!((found - expected).abs() < 1e-4, "{config}");
        }
    }
}

#[test]
fn a_solve_started_at_the_fixed_point_is_over_at_once() {
    let device = Device::default();
    for name in ["deq-resnet-xs", "deq-mlp", "deq-transformer"] {
        let task = common::task_for(name);
        let network = common::filled(common::build(name, &task, &device, 1), 0.5);
        let input = common::batch(&task, &device);
        let mut context = Context { mode: Mode::Train, ..Context::evaluate(network.fresh_statistics()) };
        let first = run(&network, &input, &mut context).equilibrium.expect("an equilibrium network");
        assert!(first.report.all_converged(), "{name}: {:?}", first.report);
        assert!(!first.state.is_autodiff());

        let mut warm = context.clone().starting(Start::At(&first.state));
        let again = run(&network, &input, &mut warm).equilibrium.expect("an equilibrium network");
        assert_eq!(again.report.steps, [1; 3], "{name}");

        let mut memory =
            WarmMemory::new(WarmStart::BySample { capacity: Some(1 << 20), precision: Precision::Single, lasting: true });
        memory.remember_tensor(&[11, 12], &first.state.clone().narrow(0, 0, 2));
        let mut recalled = context.clone().starting(Start::Recalled(&memory, &[11, 12, 13]));
        let again = run(&network, &input, &mut recalled).equilibrium.expect("an equilibrium network");
        assert_eq!(again.report.steps[..2], [1, 1], "{name}");
        assert_eq!(again.report.steps[2], first.report.steps[2], "{name}: an unknown sample starts where it always did");
    }
}

#[test]
fn dropout_is_determined_by_its_seed_and_leaves_a_fixed_point_to_find() {
    let device = Device::default();
    let task = Task::next_symbol(5, 9);
    let mut options = DeqTransformerOptions { dropout: 0.3, ..Default::default() };
    options.equilibrium.solver = Solver::fixed_point();
    options.equilibrium.stop = Stop::relative(1e-5, 100);
    let network = common::filled(ModelConfig::DeqTransformer(options).build(&task, &device, 1).expect("fits"), 0.5);
    let input = sequences([[1, 2, 3, 4, 5], [8, 7, 6, 5, 4]]);
    let with = |dropout| {
        let output = run(&network, &input, &mut Context { dropout, ..Context::evaluate(network.fresh_statistics()) });
        assert!(output.equilibrium.expect("an equilibrium network").report.all_converged(), "the masks stay the same in a solve");
        common::host(&output.logits)
    };
    assert_eq!(with(Some(1)), with(Some(1)));
    assert_ne!(with(Some(1)), with(Some(2)));
    assert_ne!(with(Some(1)), with(None));
}

#[test]
fn text_networks_see_neither_the_future_nor_padding() {
    let device = Device::default();
    let task = Task::next_symbol(5, 9);
    for name in ["transformer-4", "deq-transformer"] {
        let network = common::filled(common::build(name, &task, &device, 1), 0.5);
        let logits = |input| common::host(&evaluated(&network, &input).logits);
        let close = |left: &[f64], right: &[f64]| left.iter().zip(right).all(|(l, r)| (l - r).abs() < 2e-3);
        let whole = logits(sequences([[1, 2, 3, 4, 5]]));
        let other_end = logits(sequences([[1, 2, 3, 7, 8]]));
        let padded = logits(sequences([[1, 2, 3, 0, 0]]));
        let short = logits(sequences([[1, 2, 3]]));
        let other_start = logits(sequences([[6, 2, 3, 4, 5]]));
        let until_third = ..3 * 9;
        for same in [&other_end, &padded, &short] {
            assert!(close(&whole[until_third], &same[until_third]), "{name}");
        }
        assert!(!close(&whole[until_third], &other_start[until_third]), "{name}");
    }
}

#[test]
fn the_same_network_runs_with_and_without_autodiff() {
    let task = Task::image(8, 8, 1, 10);
    let network = common::build("deq-resnet-xs", &task, &Device::default().autodiff(), 1);
    let input = common::batch(&task, &Device::default());
    let tracked = evaluated(&network, &input).logits;
    let plain = evaluated(&network.valid(), &input).logits;
    assert!(tracked.is_tracked() && !plain.is_autodiff());
    for (tracked, plain) in common::host(&tracked).into_iter().zip(common::host(&plain)) {
        assert!((tracked - plain).abs() < 1e-5);
    }
}

#[test]
fn inputs_that_do_not_fit_are_refused() {
    let device = Device::default();
    let xs = common::build("deq-resnet-xs", &Task::image(8, 8, 1, 10), &device, 1);
    let text = common::build("transformer-4", &Task::next_symbol(4, 9), &device, 1);
    let refusal = |network: &Network, input| {
        let error = network.forward(&input, &mut Context::evaluate(network.fresh_statistics())).expect_err("does not fit");
        format!("{error}; {}", error.hint())
    };
    let image = |dims: [usize; 4]| Input::Image(Tensor::ones(dims, &device));
    assert_eq!(
        refusal(&xs, image([2, 1, 8, 8])),
        "an input of shape `[2, 1, 8, 8]` does not fit a network for 8x8x1 images; pass a batch of at least one of 8x8x1 images"
    );
    refusal(&xs, image([0, 8, 8, 1]));
    refusal(&xs, Input::Vector(Tensor::ones([2, 64], &device)));
    refusal(&text, sequences([[1, 2, 3, 4, 5]]));
    refusal(&text, image([2, 8, 8, 1]));
}

#[test]
fn a_start_that_does_not_fit_is_refused() {
    let device = Device::default();
    let task = Task::image(8, 8, 1, 10);
    let network = common::build("deq-resnet-xs", &task, &device, 1);
    let state = Tensor::ones([3, 255], &device);
    let mut context = Context::evaluate(network.fresh_statistics()).starting(Start::At(&state));
    let error = network.forward(&common::batch(&task, &device), &mut context).expect_err("does not fit");
    assert_eq!(error.to_string(), "the solve is to start from a state of shape `[3, 255]`");
    assert_eq!(error.hint(), "start from a state of shape [3, 256], or from the model's own");
}

#[test]
fn a_representation_of_another_kind_of_network_is_refused() {
    let device = Device::default();
    let [image, text] = ["resnet-xs", "transformer-4"].map(|name| common::build(name, &common::task_for(name), &device, 1));
    let mut context = Context::evaluate(image.fresh_statistics());
    let input = common::batch(&common::task_for("resnet-xs"), &device);
    let representation = image.represent(&input, &mut context).expect("fits");
    assert!(text.predict(&representation, &context).is_err());
}
