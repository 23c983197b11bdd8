//! The switches of the methods.
use fedeq_core::{
    Ditto, DualStart, FedAvg, FedEq, FedPer, FineTune, FineTuning, HeadOn, Method, PersonalStart, ThetaStart, Weighting,
};
use fedeq_data::source::Source;

use super::Preset;
use super::runner::Runner;

/// The method as a preset has it.
pub(super) fn tuned(method: Method, preset: Preset, source: &Source) -> Method {
    let runner = Runner::of(source);
    let is_reference = preset == Preset::Reference;
    match method {
        Method::Fedeq(fedeq) => Method::Fedeq(tuned_fedeq(fedeq, preset, runner.is_text)),
        Method::Ditto(ditto) => Method::Ditto(tuned_ditto(ditto, is_reference, runner.penalty)),
        Method::Fedavg(fedavg) => Method::Fedavg(FedAvg { adapt_unseen: !is_reference, ..fedavg }),
        Method::FedavgFt(tune) if is_reference => Method::FedavgFt(FineTune { tuning: FineTuning::FromShare(0.3), ..tune }),
        Method::Fedper(_) if is_reference => Method::Fedper(reference_fedper(runner.is_text)),
        unchanged => unchanged,
    }
}

fn tuned_fedeq(fedeq: FedEq, preset: Preset, is_text: bool) -> FedEq {
    match preset {
        Preset::Recommended => FedEq { start: ThetaStart::Received, ..fedeq },
        Preset::Paper => FedEq { start: ThetaStart::Own, ..fedeq },
        Preset::Reference => FedEq {
            start: ThetaStart::OwnIfConsecutive,
            head_on: HeadOn::Start,
            weighting: reference_weighting(is_text),
            dual: if is_text { DualStart::Constant(0.001) } else { DualStart::Zero },
            per_symbol: is_text,
            ..fedeq
        },
    }
}

fn tuned_ditto(ditto: Ditto, is_reference: bool, penalty: f64) -> Ditto {
    let start = if is_reference { PersonalStart::Trained } else { PersonalStart::Own };
    Ditto { penalty, start, adapt_unseen: !is_reference, ..ditto }
}

fn reference_fedper(is_text: bool) -> FedPer {
    FedPer { weighting: reference_weighting(is_text), head_first: true }
}

fn reference_weighting(is_text: bool) -> Weighting {
    if is_text { Weighting::Uniform } else { Weighting::Samples }
}
