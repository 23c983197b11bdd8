//! The methods on real networks: what must be equal is equal to the bit, whatever the number of threads.
mod digits;

use std::sync::Arc;

use digits::{CLIENTS, Digits, brief};
use fedeq_core::{
    Algorithm, Array, ClientByClient, ClientState, DualStart, FedAvg, FedBn, FedEq, FedRep, FineTune, FineTuning, KnnPer, Local,
    LocalProblem, LocalProblems, Method, Moon, Neighbours, OptimiserName, Params, Phase, Plan, ProximalGradient, ProximalTerm,
    Sampling, Schedule, ScheduleShape, SolveTally, ThetaStart, Training, Trains, View, Weights, Workers, client_seed, dual,
    received, shared_part,
};
use fedeq_cpu::{Network, NetworkProblem};
use fedeq_data::shard::{Augmentation, Shard};
use fedeq_data::{Dataset, Labels, Samples, Seed, Sequences, Vectors};
use fedeq_equilibrium::{StoredPrecision, WarmMemory, WarmStart};
use fedeq_models::{DeqMlpOptions, ModelConfig, Part, Task};

fn theta_bits(params: &Params) -> Vec<u32> {
    params.iter().flat_map(|(_, array)| array.values.iter().map(|value| value.to_bits())).collect()
}

#[test]
fn every_method_trains_every_kind_of_image_model_and_gives_the_same_bytes_for_1_and_2_threads() {
    for model in ["deq-resnet-xs", "resnet-xs", "tied-resnet-xs", "untied-resnet-xs"] {
        for name in Method::NAMES {
            let method = Method::named(name).expect("known");
            let warm_start = WarmStart::BySample { capacity: Some(1 << 20), precision: StoredPrecision::Half, lasting: true };
            let digits = Digits::new(model, Training { warm_start, ..brief() });
            let one = digits.run(method.algorithm(), 2, 1);
            assert!(one.bytes() == digits.run(method.algorithm(), 2, 2).bytes(), "{name} with {model}");
            assert!(one.evaluation.local.loss.is_finite(), "{name} with {model}");
            assert_eq!(one.evaluation.local.clients.len(), CLIENTS);
        }
    }
}

#[test]
fn fedeq_without_penalty_and_dual_from_the_received_theta_is_fedrep_to_the_bit() {
    let digits = Digits::new("deq-resnet-xs", brief());
    let fedeq = |rho| digits.run(&FedEq { rho, start: ThetaStart::Received, ..FedEq::default() }, 3, 2);
    let (free, fedrep) = (fedeq(0.0), digits.run(&FedRep::default(), 3, 2));
    assert_eq!(theta_bits(&free.server.weights.params), theta_bits(&fedrep.server.weights.params));
    assert_eq!(free.server.weights.statistics, fedrep.server.weights.statistics);
    assert!(free.states.iter().zip(&fedrep.states).all(|(a, b)| a.own == b.own));
    assert_ne!(theta_bits(&fedeq(0.1).server.weights.params), theta_bits(&fedrep.server.weights.params));
}

#[test]
fn a_penalty_without_duals_leaves_them_at_zero_and_trains_otherwise_than_with_them() {
    let digits = Digits::new("deq-resnet-xs", brief());
    let run = |rho, dual| digits.run(&FedEq { rho, dual, ..FedEq::default() }, 3, 2);
    let theta = |outcome: &digits::Outcome| theta_bits(&outcome.server.weights.params);
    let (alone, with) = (run(0.1, DualStart::None), run(0.1, DualStart::Zero));
    let norms = |outcome: &digits::Outcome| -> Vec<f64> { outcome.states.iter().map(|state| state.dual.norm()).collect() };
    assert!(norms(&alone).iter().all(|norm| *norm == 0.0), "{:?}", norms(&alone));
    assert!(norms(&with).iter().any(|norm| *norm > 0.0));
    assert_ne!(theta(&alone), theta(&with));
    // The first round begins without duals either way; with no penalty there is nothing left but FedRep.
    assert_eq!(theta(&run(0.0, DualStart::None)), theta_bits(&digits.run(&FedRep::default(), 3, 2).server.weights.params));
}

#[test]
fn knn_per_without_mixing_is_fedavg() {
    let digits = Digits::new("resnet-xs", brief());
    let neighbours = Neighbours { mixing: 0.0, ..Neighbours::default() };
    let knn = digits.run(&KnnPer { neighbours, ..KnnPer::default() }, 2, 2);
    let average = digits.run(&FedAvg::default(), 2, 2);
    assert_eq!(knn.server.weights, average.server.weights);
    assert_eq!(knn.evaluation.local, knn.evaluation.shared.clone().expect("shared"));
    assert_eq!(knn.evaluation.shared, average.evaluation.shared);
}

#[test]
fn nothing_is_sent_by_clients_that_train_alone() {
    let digits = Digits::new("resnet-xs", brief());
    let outcome = digits.run(&Local::default(), 1, 2);
    assert!(outcome.server.weights.params.is_empty() && outcome.server.weights.statistics.is_empty());
    assert_eq!(outcome.evaluation.shared, None);
    assert_eq!(outcome.evaluation.traffic.total(), 0);
}

#[test]
fn clients_that_train_alone_all_train_in_every_round_unless_told_otherwise() {
    let digits = Digits::new("resnet-xs", brief());
    let participations =
        |method: &Local| digits.run(method, 2, 2).states.iter().map(|state| state.participations).collect::<Vec<_>>();
    assert_eq!(participations(&Local::default()), [2; CLIENTS]);
    let drawn = participations(&Local { everybody: false });
    assert!(drawn.iter().sum::<u64>() < 2 * CLIENTS as u64, "{drawn:?}");
}

#[test]
fn a_method_that_shares_nothing_has_one_model_in_both_views() {
    let digits = Digits::new("resnet-xs", brief());
    let alone = digits.run(&Local::default(), 1, 2).evaluation;
    assert_eq!(alone.quality(View::Shared), &alone.local);
    let together = digits.run(&FedAvg::default(), 1, 2).evaluation;
    assert_eq!(Some(together.quality(View::Shared)), together.shared.as_ref());
}

#[test]
fn what_travels_is_the_shared_part_and_the_statistics_only() {
    let digits = Digits::new("deq-resnet-xs", brief());
    let outcome = digits.run(&FedEq::default(), 1, 2);
    assert!(outcome.server.weights.params.iter().all(|(path, _)| !path.starts_with("head.")));
    assert_eq!(outcome.server.weights.params.count(), 15_824);
    assert!(outcome.server.weights.statistics.count() > 0);
    // Three of six clients, each way: at least four bytes a number, and little more than that.
    let numbers = (outcome.server.weights.params.count() + outcome.server.weights.statistics.count()) as u64;
    for bytes in [outcome.evaluation.traffic.up, outcome.evaluation.traffic.down] {
        assert!((3 * 4 * numbers..3 * (4 * numbers + 8192)).contains(&bytes), "{bytes}");
    }
}

#[test]
fn a_client_refuses_a_message_of_another_shape_and_keeps_its_state() {
    use fedeq_core::{Client, Error, Request};
    let digits = Digits::new("deq-resnet-xs", brief());
    let method = FedEq::default();
    let mut state = ClientState::fresh(digits.initial(), method.initial_dual(&digits.initial(), Seed::new(1)), WarmStart::Off);
    let before = state.clone();
    let engine = ClientByClient::new(&digits, Workers::new(1).expect("a thread"));
    let (training, seed) = (&digits.training, Seed::new(1));
    let mut client =
        Client { algorithm: &method, training, engine: &engine, number: 0, state: &mut state, seed, compression: None };
    let sound = shared_part(&method, &digits.initial());
    let broken = [
        Weights { params: sound.params.filter(|path| path != "cell.conv_a.weight"), ..sound.clone() },
        Weights { params: sound.params.map(|_| f32::NAN), ..sound.clone() },
        digits.initial(),
        Weights::default(),
    ];
    for weights in broken {
        let request = Request { task: fedeq_core::ClientTask::Train, round: 0, rounds: 1, rho: None, weights };
        assert!(matches!(client.handle(&request), Err(Error::Message { .. })));
    }
    assert_eq!(state, before);
    assert!(digits.dataset.len() == 1797);
}

/// Some epochs on the whole model.
fn phase(name: &'static str, epochs: usize) -> Phase {
    Phase::new(name, Trains::Everything, epochs, 0.05)
}

/// What the solves of three epochs took, with warm starts of some kind.
fn solves_of_three_epochs(warm_start: WarmStart) -> SolveTally {
    let digits = Digits::new("deq-resnet-xs", Training { warm_start, ..brief() });
    let problem = digits.problem(0).expect("there");
    let mut memory = WarmMemory::new(warm_start);
    let mut weights = digits.initial();
    let slow = Phase { learning_rate: 0.001, ..phase("body", 3) };
    problem.train(&mut weights, &mut memory, &slow, None, slow.seed(Seed::new(4))).expect("trained").solves
}

#[test]
fn after_the_first_epoch_every_solve_starts_warm_and_takes_fewer_steps() {
    let (warm, cold) = (solves_of_three_epochs(WarmStart::by_sample()), solves_of_three_epochs(WarmStart::Off));
    // Batches that are not full are dropped, so a sample may come by for the first time in the second epoch.
    let share = warm.warm_share().expect("solves");
    assert!((0.5..=2.0 / 3.0).contains(&share), "{share}");
    assert_eq!((cold.warm, cold.samples), (0, warm.samples));
    assert!(warm.steps < cold.steps, "{} against {}", warm.steps, cold.steps);
}

#[test]
fn clients_last_drawn_before_the_tuning_rounds_fine_tune_the_final_global_model() {
    let digits = Digits::new("resnet-xs", brief());
    let method = FineTune { tuning: FineTuning::FromShare(0.5), ..FineTune::default() };
    let outcome = digits.run(&method, 2, 2);
    let untuned: Vec<usize> = (0..CLIENTS).filter(|&client| outcome.states[client].last_round != Some(1)).collect();
    assert!(untuned.iter().any(|&client| outcome.states[client].last_round == Some(0)), "a client was drawn only before");
    for client in untuned {
        let mut expected = digits.initial().with(&outcome.server.weights);
        let seed = client_seed(Seed::new(1), client).derive("round", [2]);
        let (problem, tune) = (digits.problem(client).expect("there"), phase("tune", 1));
        problem.train(&mut expected, &mut WarmMemory::default(), &tune, None, tune.seed(seed)).expect("trained");
        assert_eq!(outcome.states[client].own, expected);
    }
}

/// Two sequences in one batch: ten symbols, of which two are padding.
fn text_problem() -> (NetworkProblem, Weights) {
    let symbols = vec![3, 1, 4, 1, 5, 6, 2, 7, 0, 0];
    let samples = Samples::Sequences(Sequences { length: 5, vocabulary: 9, symbols: symbols.clone() });
    let dataset = Dataset { name: "text".into(), samples, labels: Labels::NextSymbols(symbols), owners: None, test_start: None };
    let dataset = Arc::new(dataset);
    let shard = |indices: Vec<u32>| Shard::new(Arc::clone(&dataset), indices).expect("there");
    let config: ModelConfig = "transformer-4".parse().expect("known");
    let network = Arc::new(Network::new(config.graph(&Task::next_symbol(5, 9)).expect("fits")));
    let weights = Weights::initial(network.graph(), 3);
    let training = Training { batch_size: std::num::NonZeroUsize::MIN.saturating_add(1), ..brief() };
    (NetworkProblem::new(network, [shard(vec![0, 1]), shard(vec![]), shard(vec![])], &training), weights)
}

#[test]
fn both_admm_terms_by_predictions_are_divided_by_the_symbols_that_are_not_padding() {
    let (problem, start) = text_problem();
    let moved = |times: f32, per_prediction: bool| {
        let mut weights = start.clone();
        let term = ProximalTerm { per_prediction, ..ProximalTerm::augmented(times.into(), received(), dual()) };
        let lambda = start.params.map(|value| times * (0.5 - value));
        let proximal = ProximalGradient::new(&term, &start.params.map(|_| 1.0), Some(&lambda));
        let phase = phase("body", 1).towards(term);
        problem
            .train(&mut weights, &mut WarmMemory::default(), &phase, Some(&proximal), phase.seed(Seed::new(1)))
            .expect("trained");
        weights.params.minus(&start.params)
    };
    let (divided, weaker, whole) = (moved(8.0, true), moved(1.0, false), moved(8.0, false));
    assert!(divided.minus(&weaker).norm() < 1e-5 * weaker.norm(), "eight symbols are not padding");
    assert!(whole.minus(&weaker).norm() > weaker.norm());
}

#[test]
fn the_measured_gradient_is_that_of_the_loss_whatever_stands_in_for_it_in_training() {
    let digits = Digits::new("deq-resnet-xs", brief());
    let problem = digits.problem(0).expect("there");
    let mut weights = digits.initial();
    let body = phase("body", 3);
    problem.train(&mut weights, &mut WarmMemory::default(), &body, None, body.seed(Seed::new(4))).expect("trained");
    let (_, gradient) = problem.gradient(&weights).expect("a gradient");
    let along = |wanted: &dyn Fn(&str) -> bool| {
        let direction = gradient.filter(|path| wanted(path));
        let step = 5e-4 / direction.norm();
        let loss = |step: f64| {
            let mut moved = weights.clone();
            moved.params.overwrite(&moved.params.filter(|path| wanted(path)).plus(step as f32, &direction));
            problem.gradient(&moved).expect("a gradient").0
        };
        let difference = (loss(step) - loss(-step)) / (2.0 * step);
        (difference, direction.dot(&direction))
    };
    // The cell's part of a Jacobian-free gradient is several times too short.
    type Wanted<'a> = &'a dyn Fn(&str) -> bool;
    let parts: [(&str, Wanted<'_>); 3] = [
        ("cell", &|path| path.starts_with("cell")),
        ("stem", &|path| path.starts_with("stem")),
        ("head", &|path| Part::of(path) == Part::Personal),
    ];
    for (part, wanted) in parts {
        let (difference, expected) = along(wanted);
        assert!((difference - expected).abs() < 0.01 * expected, "{part}: {difference} against {expected}");
    }
}

/// A client with the sample `(1, 1)`, and weights of a network `z = relu(B z + x)` whose class is the larger half of `z`.
fn rivalling_problem(strength: f32) -> (NetworkProblem, Weights) {
    use fedeq_core::Array;
    let labels = Labels::Classes { names: vec!["left".into(), "right".into()], values: vec![0] };
    let samples = Samples::Vectors(Vectors { width: 2, values: vec![1.0, 1.0] });
    let dataset = Arc::new(Dataset { name: "rivals".into(), samples, labels, owners: None, test_start: None });
    let shard = |indices: Vec<u32>| Shard::new(Arc::clone(&dataset), indices).expect("there");
    let config = ModelConfig::DeqMlp(DeqMlpOptions { hidden: Some(2), dense: 2, ..DeqMlpOptions::default() });
    let network = Arc::new(Network::new(config.graph(&Task::vector(2, 2)).expect("fits")));
    let mut params = Weights::initial(network.graph(), 3).params.zeros_like();
    let square = |values: [f32; 4]| Array::new(vec![2, 2], values.to_vec());
    let identity = ["c.weight", "dense.weight", "head.weight"].map(|name| (name.to_owned(), square([1.0, 0.0, 0.0, 1.0])));
    params.overwrite(&identity.into_iter().collect());
    params.overwrite(&[("cell.b.weight".to_owned(), square([0.0, -strength, -strength, 0.0]))].into_iter().collect());
    let weights = Weights { params, statistics: Params::default() };
    (NetworkProblem::new(network, [shard(vec![0]), shard(vec![]), shard(vec![0])], &brief()), weights)
}

#[test]
fn several_fixed_points_are_found_with_their_distance_answers_and_spectral_radii() {
    use fedeq_core::{FixedPoints, Portion, Search};
    let find = |strength: f32| {
        let (problem, weights) = rivalling_problem(strength);
        let search = Search { samples: 3, starts: 20 };
        problem.fixed_points(&weights, Portion::Test, &search, Seed::new(1)).expect("sound").expect("an equilibrium")
    };
    // Each half holds the other down by 0.4 of itself: they settle at the same height, 1 / 1.4.
    let [one] = &find(0.4)[..] else { panic!("one sample") };
    assert_eq!((one.settled, one.own_settled, one.fixed_points, one.answers_differ), (20, true, 1, false));
    assert!((one.radius - 0.4).abs() < 1e-3 && (one.largest_radius - 0.4).abs() < 1e-3 && one.distance == 0.0, "{one:?}");
    // By twice of itself: one wins, at (1, 0) or (0, 1), where nothing depends on the state any more; (1, 1) / 3 is a fixed point too,
    // which the slightest push leaves.
    let [rivals] = &find(2.0)[..] else { panic!("one sample") };
    assert!(rivals.fixed_points >= 2 && rivals.answers_differ, "{rivals:?}");
    assert!(rivals.distance > 0.5 && (rivals.radius - 2.0).abs() < 1e-2, "{rivals:?}");
    let sum = FixedPoints::of(&[one.clone(), rivals.clone()]);
    assert_eq!((sum.samples, sum.several, sum.answers_differ, sum.unstable), (2, 1, 1, 1));
    assert_eq!(sum.shares(), Some([0.5, 0.5, 0.0, 0.5]));
    assert!((sum.mean_radius().expect("samples") - 1.2).abs() < 1e-2);
}

#[test]
fn an_explicit_network_has_no_fixed_points_to_look_for() {
    use fedeq_core::{Portion, Search};
    let digits = Digits::new("resnet-xs", brief());
    let found =
        digits.problem(0).expect("there").fixed_points(&digits.initial(), Portion::Test, &Search::default(), Seed::new(1));
    assert_eq!(found.expect("sound"), None);
}

#[test]
fn fedbn_sends_everything_but_normalisations_which_differ_from_client_to_client() {
    let digits = Digits::new("resnet-xs", brief());
    let outcome = digits.run(&FedBn::default(), 2, 2);
    let sent = &outcome.server.weights;
    let is_norm = |path: &str| fedeq_models::is_normalisation(path);
    assert!(sent.statistics.is_empty() && sent.params.iter().all(|(path, _)| !is_norm(path)));
    let initial = digits.initial().params;
    assert_eq!(sent.params.iter().count(), initial.iter().filter(|(path, _)| !is_norm(path)).count());
    let trained: Vec<&ClientState> = outcome.states.iter().filter(|state| state.participations > 0).collect();
    let norms = |state: &ClientState| theta_bits(&state.own.params.filter(is_norm));
    assert!(trained.len() > 1 && norms(trained[0]) != norms(trained[1]));
    // Without normalisations there is nothing to keep.
    let plain = Digits::new("mlp", brief());
    assert_eq!(plain.run(&FedBn::default(), 2, 2).server.weights, plain.run(&FedAvg::default(), 2, 2).server.weights);
}

/// Parameters of some clients, each of whom counts by its samples, in double precision.
fn mean_by_samples(digits: &Digits, cohort: &[usize], clients: &[Weights], of: &Params) -> Params {
    let samples = |client: &usize| digits.problem(*client).expect("there").samples() as f64;
    let whole: f64 = cohort.iter().map(samples).sum();
    let mean = |(path, array): (&str, &Array)| {
        let value = |client: &usize, at: usize| f64::from(clients[*client].params.get(path).expect("there").values[at]);
        let at = |at: usize| cohort.iter().map(|client| samples(client) / whole * value(client, at)).sum::<f64>() as f32;
        (path.to_owned(), Array::new(array.shape.clone(), (0..array.values.len()).map(at).collect()))
    };
    of.iter().map(mean).collect()
}

/// Li et al. (2021), algorithm 1: local training of everything, then the mean of all layers but normalisations, which go on from where their client left them.
#[test]
fn fedbn_follows_its_paper_on_a_network_with_normalisations() {
    let (digits, method, rounds) = (Digits::new("resnet-xs", brief()), FedBn::default(), 3);
    let plan = Plan { sampling: Sampling { fraction: 0.5, ..Sampling::default() }, ..Plan::default() };
    let mut server = digits.initial().params.filter(|path| !fedeq_models::is_normalisation(path));
    let (mut clients, mut participations) = (vec![digits.initial(); CLIENTS], [0; CLIENTS]);
    for round in 0..rounds {
        let cohort = plan.cohort(&method, CLIENTS, Seed::new(2), round).expect("sound");
        for &client in &cohort {
            clients[client].params.overwrite(&server);
            let (problem, body) = (digits.problem(client).expect("there"), phase("body", 1));
            let seed = body.seed(client_seed(Seed::new(1), client).derive("round", [round]));
            problem.train(&mut clients[client], &mut WarmMemory::default(), &body, None, seed).expect("trained");
            participations[client] += 1;
        }
        server = mean_by_samples(&digits, &cohort, &clients, &server);
    }
    assert!(participations.iter().any(|rounds| *rounds > 1), "some client goes on with its own normalisations");
    let outcome = digits.run(&method, rounds, 2);
    let is_near = |found: &Params, expected: &Params| found.minus(expected).norm() < 1e-5 * expected.norm();
    assert!(is_near(&outcome.server.weights.params, &server));
    for (state, expected) in outcome.states.iter().zip(&clients) {
        assert!(is_near(&state.own.params, &expected.params) && is_near(&state.own.statistics, &expected.statistics));
    }
}

#[test]
fn optimisers_schedules_and_changed_pictures_give_the_same_bytes_for_1_and_2_threads_and_others_than_plain_steps() {
    let plain = brief();
    let falling = Schedule { shape: ScheduleShape::Cosine, ..Schedule::default() };
    let adam = Training { optimiser: OptimiserName::AdamW, learning_rate: 0.01, schedule: Some(falling), ..brief() };
    let clipped =
        Training { momentum: Some(0.9), nesterov: true, clip_gradient: Some(0.5), local_schedule: Some(falling), ..brief() };
    let changed = Training { augment: Some(Augmentation { crop: Some(1), flip: true }), ..brief() };
    let run = |training: &Training, threads| Digits::new("resnet-xs", training.clone()).run(&FedRep::default(), 2, threads);
    let expected = run(&plain, 1).bytes();
    for training in [adam, clipped, changed] {
        let outcome = run(&training, 1);
        assert!(outcome.bytes() == run(&training, 2).bytes(), "{training:?}");
        assert!(outcome.bytes() != expected && outcome.evaluation.local.loss.is_finite(), "{training:?}");
    }
}

#[test]
fn moon_without_weight_is_fedavg_and_with_it_is_not() {
    let digits = Digits::new("resnet-xs", brief());
    let run = |weight| digits.run(&Moon { weight, ..Moon::default() }, 2, 2).server.weights;
    let average = digits.run(&FedAvg::default(), 2, 2).server.weights;
    assert_eq!(run(0.0), average);
    assert_ne!(run(1.0).params, average.params);
}
