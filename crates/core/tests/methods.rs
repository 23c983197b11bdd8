//! Each method against its authors' equations, computed once more in a straight line and in double precision on the convex problem, where an epoch is one full gradient step.
mod common;

use common::{CLIENTS, Problem, SHARED};
use fedeq_core::{
    Algorithm, Apfl, ClientState, Ditto, Error, FedAvg, FedBn, FedDyn, FedEq, FedPer, FedProx, FineTune, FineTuning, InProcess,
    Local, LocalProblem, PFedMe, PersonalStart, Plan, Sampling, Scaffold, Server, ServerOptimiser, ServerRule, ServerState,
    ServerStep, Training, Weighting, Weights,
};
use fedeq_data::Seed;

/// A vector of the convex problem: the shared numbers, then the personal ones.
type Vector = Vec<f64>;

const ROUNDS: u64 = 7;
const EPOCHS: usize = 3;
const RATE: f64 = 0.05;

fn training() -> Training {
    Training { learning_rate: RATE, epochs: EPOCHS, ..Training::default() }
}

/// Some clients take part in each round, so that what those do who do not is seen as well.
fn plan(server_optimiser: Option<ServerOptimiser>) -> Plan {
    let sampling = Sampling { fraction: 0.5, ..Sampling::default() };
    Plan { rounds: ROUNDS, sampling, evaluate_every: 0, measure_theory: true, server_optimiser, ..Plan::default() }
}

fn run(problem: &Problem, algorithm: &dyn Algorithm, plan: &Plan) -> (ServerState, Vec<ClientState>) {
    let mut server = problem.server(algorithm, 0.0);
    let fresh = server.clone();
    let dual = algorithm.initial_dual(&Problem::start(), Seed::new(1));
    let mut store = problem.store(move |_| dual.clone());
    let (never, engine, training) = (|| false, problem.engine(), training());
    let mut transport = InProcess::new(algorithm, &training, &engine, &mut store, Seed::new(1), &never);
    for rounds in 1..=plan.rounds {
        let plan = Plan { rounds, ..plan.clone() };
        let mut federation = Server { algorithm, plan: &plan, clients: CLIENTS, transport: &mut transport, seed: Seed::new(2) };
        assert!(federation.run(&mut server, &mut []).expect("a sound federation").is_continue());
        // As after a kill: what the server keeps comes back from its file.
        server = ServerState::from_bytes(&server.to_bytes().expect("writable"), rounds, &fresh).expect("readable");
    }
    (server, (0..CLIENTS).map(|client| store.get(client).expect("in memory")).collect())
}

/// Who takes part in each round.
fn cohorts(algorithm: &dyn Algorithm) -> Vec<Vec<usize>> {
    (0..ROUNDS).map(|round| plan(None).cohort(algorithm, CLIENTS, Seed::new(2), round).expect("sound")).collect()
}

fn flat(weights: &Weights) -> Vector {
    [body(weights), part(weights, "head.w")].concat()
}

/// What clients share where heads stay with them.
fn body(weights: &Weights) -> Vector {
    part(weights, "theta")
}

fn part(weights: &Weights, name: &str) -> Vector {
    weights.params.get(name).expect("there").values.iter().map(|&value| f64::from(value)).collect()
}

fn gradient(problem: &Problem, client: usize, x: &[f64]) -> Vector {
    let weights = common::weights(&x[..SHARED], &x[SHARED..]);
    flat(&Weights { params: problem.clients[client].gradient(&weights).expect("sound").1, ..Weights::default() })
}

/// `a + factor * b`.
fn plus(a: &[f64], factor: f64, b: &[f64]) -> Vector {
    a.iter().zip(b).map(|(a, b)| a + factor * b).collect()
}

fn minus(a: &[f64], b: &[f64]) -> Vector {
    plus(a, -1.0, b)
}

fn mean(all: &[Vector]) -> Vector {
    let zero = vec![0.0; all[0].len()];
    all.iter().fold(zero, |sum, one| plus(&sum, 1.0 / all.len() as f64, one))
}

fn zero() -> Vector {
    flat(&Problem::start())
}

fn assert_near(found: &[f64], expected: &[f64], what: &str) {
    let (distance, size) = (norm(&minus(found, expected)), norm(expected));
    assert!(distance < 2e-6 * size.max(0.1), "{what}: {found:?} instead of {expected:?}");
}

fn norm(x: &[f64]) -> f64 {
    x.iter().map(|value| value * value).sum::<f64>().sqrt()
}

/// The mean in which clients count by their samples.
fn by_samples(problem: &Problem, clients: &[usize], all: &[Vector]) -> Vector {
    let samples = |client: &usize| problem.clients[*client].samples() as f64;
    let whole: f64 = clients.iter().map(samples).sum();
    clients.iter().zip(all).fold(vec![0.0; all[0].len()], |sum, (client, one)| plus(&sum, samples(client) / whole, one))
}

/// So many steps of a client alone.
fn descent(problem: &Problem, client: usize, from: &[f64], steps: usize) -> Vector {
    (0..steps).fold(from.to_vec(), |x, _| plus(&x, -RATE, &gradient(problem, client, &x)))
}

/// The models that FedAvg's server has in the end.
fn averaged(problem: &Problem, method: &dyn Algorithm) -> Vector {
    cohorts(method).into_iter().fold(zero(), |w, cohort| {
        let local: Vec<Vector> = cohort.iter().map(|&client| descent(problem, client, &w, EPOCHS)).collect();
        by_samples(problem, &cohort, &local)
    })
}

#[test]
fn fedavg_follows_its_paper() {
    let (problem, method) = (Problem::unequal(3), FedAvg::default());
    assert_near(&flat(&run(&problem, &method, &plan(None)).0.weights), &averaged(&problem, &method), "FedAvg");
}

#[test]
fn fine_tuning_begins_at_the_last_model_of_fedavg_and_moves_no_other() {
    let (problem, epochs) = (Problem::unequal(3), 4);
    let method = FineTune { tuning: FineTuning::After { epochs }, ..FineTune::default() };
    let w = averaged(&problem, &method);
    let (server, states) = run(&problem, &method, &plan(None));
    assert_near(&flat(&server.weights), &w, "w");
    for (client, state) in states.iter().enumerate() {
        assert_near(&flat(&state.own), &descent(&problem, client, &w, epochs), "the model of a client");
    }
}

#[test]
fn fedper_follows_its_paper() {
    let (problem, method) = (Problem::unequal(3), FedPer::default());
    let (mut theta, mut heads) = (zero()[..SHARED].to_vec(), vec![zero()[SHARED..].to_vec(); CLIENTS]);
    for cohort in cohorts(&method) {
        let mut bodies = Vec::new();
        for &client in &cohort {
            let both = descent(&problem, client, &[theta.as_slice(), &heads[client]].concat(), EPOCHS);
            bodies.push(both[..SHARED].to_vec());
            heads[client] = both[SHARED..].to_vec();
        }
        theta = by_samples(&problem, &cohort, &bodies);
    }
    let (server, states) = run(&problem, &method, &plan(None));
    assert!(server.weights.params.get("head.w").is_none(), "the head stays with its client");
    assert_near(&body(&server.weights), &theta, "theta");
    for (state, head) in states.iter().zip(&heads) {
        assert_near(&flat(&state.own)[SHARED..], head, "w_i");
    }
}

#[test]
fn ditto_follows_its_paper() {
    let (problem, lambda) = (Problem::unequal(3), 0.7);
    for start in [PersonalStart::Own, PersonalStart::Trained] {
        let method = Ditto { penalty: lambda, start, ..Ditto::default() };
        let (mut w, mut personal) = (zero(), vec![None; CLIENTS]);
        for cohort in cohorts(&method) {
            let mut local = Vec::new();
            for &client in &cohort {
                let trained = descent(&problem, client, &w, EPOCHS);
                // Their line 6, once a step: v_k <- v_k - eta (grad F_k(v_k) + lambda (v_k - w^t)), from the v_k of before or, in the code of FeDEQ's authors, from w_k.
                let step = |v: Vector, _| plus(&v, -RATE, &plus(&gradient(&problem, client, &v), lambda, &minus(&v, &w)));
                let first = match start {
                    PersonalStart::Own => personal[client].take().unwrap_or_else(zero),
                    PersonalStart::Trained => trained.clone(),
                };
                personal[client] = Some((0..EPOCHS).fold(first, step));
                local.push(trained);
            }
            w = by_samples(&problem, &cohort, &local);
        }
        let (server, states) = run(&problem, &method, &plan(None));
        assert_near(&flat(&server.weights), &w, "w");
        for (state, expected) in states.iter().zip(&personal) {
            assert_eq!(state.second.is_some(), expected.is_some());
            if let (Some(found), Some(expected)) = (&state.second, expected) {
                assert_near(&flat(found), expected, "v_k");
            }
        }
    }
}

#[test]
fn clients_that_train_alone_descend_their_own_loss() {
    let (problem, method) = (Problem::unequal(3), Local::default());
    let (_, states) = run(&problem, &method, &plan(None));
    for (client, state) in states.iter().enumerate() {
        let steps = ROUNDS as usize * EPOCHS;
        assert_near(&flat(&state.own), &descent(&problem, client, &zero(), steps), "the model of a client");
    }
}

#[test]
fn fedprox_follows_its_paper() {
    let (problem, mu) = (Problem::new(3), 0.7);
    let method = FedProx { penalty: mu, weighting: Weighting::Uniform, ..FedProx::default() };
    let mut w = zero();
    for cohort in cohorts(&method) {
        let local = cohort.iter().map(|&client| {
            let step = |x: Vector, _| plus(&x, -RATE, &plus(&gradient(&problem, client, &x), mu, &minus(&x, &w)));
            (0..EPOCHS).fold(w.clone(), step)
        });
        w = mean(&local.collect::<Vec<_>>());
    }
    assert_near(&flat(&run(&problem, &method, &plan(None)).0.weights), &w, "FedProx");
}

#[test]
fn fedprox_without_penalty_is_fedavg_to_the_bit() {
    let problem = Problem::new(3);
    let free = run(&problem, &FedProx { penalty: 0.0, ..FedProx::default() }, &plan(None)).0;
    assert_eq!(free.weights, run(&problem, &FedAvg::default(), &plan(None)).0.weights);
}

#[test]
fn scaffold_follows_its_paper() {
    let problem = Problem::new(3);
    for server_rate in [1.0, 0.6] {
        let method = Scaffold { server_rate };
        let (mut x, mut c, mut controls) = (zero(), zero(), vec![zero(); CLIENTS]);
        for cohort in cohorts(&method) {
            let (mut moves, mut changes) = (Vec::new(), Vec::new());
            for client in cohort {
                let c_i = controls[client].clone();
                let corrected = |y: &[f64]| plus(&minus(&gradient(&problem, client, y), &c_i), 1.0, &c);
                let y = (0..EPOCHS).fold(x.clone(), |y, _| plus(&y, -RATE, &corrected(&y)));
                controls[client] = plus(&minus(&c_i, &c), 1.0 / (EPOCHS as f64 * RATE), &minus(&x, &y));
                moves.push(minus(&y, &x));
                changes.push(minus(&controls[client], &c_i));
            }
            x = plus(&x, server_rate, &mean(&moves));
            c = plus(&c, changes.len() as f64 / CLIENTS as f64, &mean(&changes));
        }
        let (server, states) = run(&problem, &method, &plan(None));
        assert_near(&flat(&server.weights.model()), &x, "x");
        // A control is a difference of two models by a short way: rounding to 32 bits counts for more.
        let near = |found: &[f64], expected: &[f64]| norm(&minus(found, expected)) < 1e-5 * norm(expected).max(1.0);
        assert!(near(&flat(&server.weights.control()), &c), "c");
        for (client, state) in states.iter().enumerate() {
            let c_i = flat(&Weights { params: state.dual.clone(), ..Weights::default() });
            assert!(near(&c_i, &controls[client]), "c_{client}: {c_i:?} instead of {:?}", controls[client]);
        }
        // The server's control is the mean of all clients' at any time.
        assert!(near(&c, &mean(&controls)));
    }
}

#[test]
fn scaffold_reaches_the_optimum_where_fedavg_stays_away_from_it() {
    // Where all is shared, the optimum is the point at which the clients' gradients add up to nothing.
    let problem = Problem::new(3);
    let residual = |method: &dyn Algorithm| {
        let plan = Plan { rounds: 300, sampling: Sampling { fraction: 1.0, ..Sampling::default() }, ..plan(None) };
        let x = flat(&run(&problem, method, &plan).0.weights.model());
        norm(&mean(&(0..CLIENTS).map(|client| gradient(&problem, client, &x)).collect::<Vec<_>>()))
    };
    let (scaffold, dynamic) = (residual(&Scaffold::default()), residual(&FedDyn { alpha: 0.5 }));
    let drifted = residual(&FedAvg { weighting: Weighting::Uniform, ..FedAvg::default() });
    assert!(scaffold < 1e-5 && dynamic < 1e-5 && drifted > 1e-3, "{scaffold} {dynamic} {drifted}");
}

#[test]
fn feddyn_follows_its_paper() {
    let (problem, alpha) = (Problem::new(3), 0.4);
    let method = FedDyn { alpha };
    let (mut theta, mut h, mut gradients) = (zero(), zero(), vec![zero(); CLIENTS]);
    for cohort in cohorts(&method) {
        let mut local = Vec::new();
        for client in cohort {
            // Their L_k(theta) - <grad_k, theta> + alpha / 2 ||theta - theta^{t-1}||^2.
            let grad = gradients[client].clone();
            let force = |x: &[f64]| plus(&minus(&gradient(&problem, client, x), &grad), alpha, &minus(x, &theta));
            let found = (0..EPOCHS).fold(theta.clone(), |x, _| plus(&x, -RATE, &force(&x)));
            gradients[client] = plus(&grad, -alpha, &minus(&found, &theta));
            local.push(found);
        }
        let moved: Vec<Vector> = local.iter().map(|found| minus(found, &theta)).collect();
        h = plus(&h, -alpha * moved.len() as f64 / CLIENTS as f64, &mean(&moved));
        theta = plus(&mean(&local), -1.0 / alpha, &h);
    }
    let (server, states) = run(&problem, &method, &plan(None));
    assert_near(&flat(&server.weights), &theta, "theta");
    for (client, state) in states.iter().enumerate() {
        let lambda = flat(&Weights { params: state.dual.map(|value| -value), ..Weights::default() });
        assert_near(&lambda, &gradients[client], "a client's gradient");
    }
}

#[test]
fn pfedme_follows_its_paper() {
    let (problem, lambda, rate, beta, inner_steps) = (Problem::new(3), 2.0, 0.3, 0.7, 4);
    let method = PFedMe { penalty: lambda, inner_steps, rate, server_rate: beta, ..PFedMe::default() };
    let (mut w, mut personal) = (zero(), vec![None; CLIENTS]);
    for cohort in cohorts(&method) {
        let mut local = Vec::new();
        for client in cohort {
            let (mut w_i, mut theta) = (w.clone(), personal[client].clone().unwrap_or_else(|| w.clone()));
            for _ in 0..EPOCHS {
                for _ in 0..inner_steps {
                    theta = plus(&theta, -RATE, &plus(&gradient(&problem, client, &theta), lambda, &minus(&theta, &w_i)));
                }
                w_i = plus(&w_i, -rate * lambda, &minus(&w_i, &theta));
            }
            personal[client] = Some(theta);
            local.push(w_i);
        }
        w = plus(&plus(&zero(), 1.0 - beta, &w), beta, &mean(&local));
    }
    let (server, states) = run(&problem, &method, &plan(None));
    assert_near(&flat(&server.weights), &w, "w");
    for (state, expected) in states.iter().zip(&personal) {
        assert_eq!(state.second.is_some(), expected.is_some());
        if let (Some(found), Some(expected)) = (&state.second, expected) {
            assert_near(&flat(found), expected, "theta_i");
        }
    }
}

#[test]
fn apfl_follows_its_paper() {
    let (problem, alpha) = (Problem::new(3), 0.3);
    let method = Apfl { mixing: alpha, ..Apfl::default() };
    let (mut w, mut personal) = (zero(), vec![zero(); CLIENTS]);
    for cohort in cohorts(&method) {
        let mut local = Vec::new();
        for client in cohort {
            let (mut w_i, mut v) = (w.clone(), personal[client].clone());
            for _ in 0..EPOCHS {
                let mixed = plus(&plus(&zero(), alpha, &v), 1.0 - alpha, &w_i);
                v = plus(&v, -RATE * alpha, &gradient(&problem, client, &mixed));
                w_i = plus(&w_i, -RATE, &gradient(&problem, client, &w_i));
            }
            personal[client] = v;
            local.push(w_i);
        }
        w = mean(&local);
    }
    let (server, states) = run(&problem, &method, &plan(None));
    assert_near(&flat(&server.weights), &w, "w");
    for (state, expected) in states.iter().zip(&personal) {
        let found = state.second.as_ref().map_or_else(zero, flat);
        assert!(norm(&minus(&found, expected)) < 1e-5 * norm(expected).max(0.1), "v_i: {found:?} instead of {expected:?}");
    }
}

#[test]
fn adaptive_apfl_moves_each_mixing_along_its_gradient() {
    let problem = Problem::new(3);
    let method = Apfl { mixing: 0.3, adaptive: true, ..Apfl::default() };
    let (mut w, mut personal, mut alphas) = (zero(), vec![zero(); CLIENTS], vec![None; CLIENTS]);
    for cohort in cohorts(&method) {
        let mut local = Vec::new();
        for client in cohort {
            let (mut w_i, mut v, alpha) = (w.clone(), personal[client].clone(), alphas[client].unwrap_or(0.3));
            for epoch in 0..EPOCHS {
                let mixed = plus(&plus(&zero(), alpha, &v), 1.0 - alpha, &w_i);
                let slope = gradient(&problem, client, &mixed);
                if epoch == 0 {
                    // The equation for alpha: its gradient is <v_i - w_i, grad L_i(mixture)>.
                    let along: f64 = minus(&v, &w_i).iter().zip(&slope).map(|(a, b)| a * b).sum();
                    alphas[client] = Some((alpha - RATE * along).clamp(0.01, 1.0));
                }
                v = plus(&v, -RATE * alpha, &slope);
                w_i = plus(&w_i, -RATE, &gradient(&problem, client, &w_i));
            }
            personal[client] = v;
            local.push(w_i);
        }
        w = mean(&local);
    }
    let (server, states) = run(&problem, &method, &plan(None));
    assert_near(&flat(&server.weights), &w, "w");
    for (state, (expected, v)) in states.iter().zip(alphas.iter().zip(&personal)) {
        let near = |(found, expected): (f64, f64)| (found - expected).abs() < 1e-5;
        assert!(
            state.mixing.zip(*expected).map_or(state.mixing == *expected, near),
            "{:?} instead of {expected:?}",
            state.mixing
        );
        let found = state.second.as_ref().map_or_else(zero, flat);
        assert!(norm(&minus(&found, v)) < 1e-4 * norm(v).max(0.1), "v_i: {found:?} instead of {v:?}");
        let read = ClientState::from_bytes(&state.to_bytes().expect("writable"), state).expect("readable");
        assert_eq!(read.mixing, state.mixing, "it is kept with the rest");
    }
    let moved = alphas.iter().flatten().filter(|alpha| (**alpha - 0.3).abs() > 1e-3).count();
    assert!(moved > 0, "{alphas:?}");
}

#[test]
fn server_optimisers_follow_their_papers() {
    let problem = Problem::new(3);
    let method = FedAvg { weighting: Weighting::Uniform, ..FedAvg::default() };
    for rule in [ServerRule::Adam, ServerRule::Yogi, ServerRule::Adagrad, ServerRule::Momentum] {
        let optimiser = ServerOptimiser { rule, rate: 0.07, beta_1: 0.8, beta_2: 0.95, tau: 0.02 };
        let ServerOptimiser { rate, beta_1, beta_2, tau, .. } = optimiser;
        let (mut x, mut m, mut v) = (zero(), zero(), vec![tau * tau; zero().len()]);
        for cohort in cohorts(&method) {
            let local =
                cohort.iter().map(|&client| (0..EPOCHS).fold(x.clone(), |y, _| plus(&y, -RATE, &gradient(&problem, client, &y))));
            let change = minus(&mean(&local.collect::<Vec<_>>()), &x);
            for at in 0..x.len() {
                let (d, square) = (change[at], change[at] * change[at]);
                if rule == ServerRule::Momentum {
                    m[at] = beta_1 * m[at] + d;
                    x[at] += rate * m[at];
                    continue;
                }
                m[at] = beta_1 * m[at] + (1.0 - beta_1) * d;
                v[at] = match rule {
                    ServerRule::Adam => beta_2 * v[at] + (1.0 - beta_2) * square,
                    ServerRule::Yogi if v[at] > square => v[at] - (1.0 - beta_2) * square,
                    ServerRule::Yogi => v[at] + (1.0 - beta_2) * square,
                    _ => v[at] + square,
                };
                x[at] += rate * m[at] / (v[at].sqrt() + tau);
            }
        }
        let found = flat(&run(&problem, &method, &plan(Some(optimiser))).0.weights);
        assert!(norm(&minus(&found, &x)) < 1e-5 * norm(&x), "{rule:?}: {found:?} instead of {x:?}");
    }
}

#[test]
fn a_server_optimiser_is_refused_where_the_server_does_not_average() {
    let plan = plan(Some(ServerOptimiser::default()));
    let consensus = FedEq { server_step: ServerStep::Consensus, ..FedEq::default() };
    for refused in [&Local::default() as &dyn Algorithm, &Scaffold::default(), &FedDyn::default(), &consensus] {
        let error = plan.validate(refused).expect_err("refused");
        assert!(matches!(error, Error::Invalid { .. }) && error.to_string().contains("plan.server_optimiser"), "{error}");
    }
    for allowed in [&FedProx::default() as &dyn Algorithm, &FedBn::default(), &FedEq::default()] {
        assert!(plan.validate(allowed).is_ok());
    }
    for wrong in [
        ServerOptimiser { rate: 0.0, ..ServerOptimiser::default() },
        ServerOptimiser { tau: f64::NAN, ..ServerOptimiser::default() },
        ServerOptimiser { beta_1: 1.0, ..ServerOptimiser::default() },
        ServerOptimiser { beta_2: -0.1, ..ServerOptimiser::default() },
    ] {
        assert!(wrong.validate().is_err(), "{wrong:?}");
    }
}
