//! `fedeq devices`.
use clap::Args;

use super::failure::Outcome;
use super::output::{print, print_json};
use super::table::{Align, Table};
use fedeq_run::machine::{Cpu, Gpu, MachineInfo};
use fedeq_run::number::{bytes, counted};

/// Lists what this machine can compute on.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  fedeq devices
  fedeq devices --json

The first column is what `--device` takes, as in `fedeq run --device cuda`. A GPU is one by NVIDIA, from compute capability 8.0 on (Ampere), with a driver from 550 on; \
nothing else of CUDA is needed.")]
pub(super) struct DevicesCommand {
    /// Write JSON, with memory in bytes
    #[arg(long)]
    json: bool,
}

pub(super) fn run(arguments: &DevicesCommand) -> Outcome<()> {
    let machine = MachineInfo::here();
    if arguments.json { print_json(&machine) } else { print(&text_of(&machine)) }
}

fn text_of(MachineInfo { cpu, gpus, no_gpu }: &MachineInfo) -> String {
    let mut table = Table::new(&[
        ("device", Align::Left),
        ("name", Align::Left),
        ("memory", Align::Right),
        ("free", Align::Right),
        ("", Align::Left),
    ]);
    table.row(row_of_cpu(cpu));
    gpus.iter().for_each(|gpu| table.row(row_of_gpu(gpu)));
    let missing = no_gpu.as_ref().map(|missing| format!("\nno GPU: {}\nhint: {}\n", missing.problem, missing.hint));
    table.text() + &missing.unwrap_or_default()
}

fn row_of_cpu(cpu: &Cpu) -> [String; 5] {
    let amount = |memory: Option<u64>| memory.map_or_else(|| "?".into(), bytes);
    let cores = cpu.cores.map(|cores| counted(cores, "core") + ", ").unwrap_or_default();
    let name = cpu.name.clone().unwrap_or_else(|| "unknown processor".into());
    ["cpu".into(), name, amount(cpu.memory), amount(cpu.free), format!("{cores}{} instructions", cpu.instructions)]
}

fn row_of_gpu(gpu: &Gpu) -> [String; 5] {
    let about = format!("compute capability {}, driver for CUDA {}", gpu.capability, gpu.driver);
    [gpu.device.clone(), gpu.name.clone(), bytes(gpu.memory), bytes(gpu.free), about]
}

#[cfg(test)]
mod tests {
    use super::*;
    use fedeq_run::machine::Missing;

    fn machine(gpus: Vec<Gpu>, no_gpu: Option<Missing>) -> MachineInfo {
        let cpu = Cpu {
            name: Some("Old Faithful".into()),
            cores: Some(2),
            instructions: "AVX2",
            memory: Some(16_000_000_000),
            free: None,
        };
        MachineInfo { cpu, gpus, no_gpu }
    }

    #[test]
    fn every_device_has_a_line() {
        let card = Gpu {
            device: "cuda:0".into(),
            name: "Fast Card".into(),
            memory: 150_000_000_000,
            free: 149_000_000_000,
            capability: "9.0".into(),
            driver: "12.4".into(),
        };
        let text = text_of(&machine(vec![card], None));
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3, "{text}");
        assert!(
            lines[1].starts_with("cpu ") && lines[1].contains("16 GB") && lines[1].ends_with("2 cores, AVX2 instructions"),
            "{text}"
        );
        assert!(lines[2].starts_with("cuda:0 ") && lines[2].contains("149 GB"), "{text}");
    }

    #[test]
    fn why_there_is_no_gpu_is_told() {
        let missing = Missing { problem: "there is no driver".into(), hint: "install it".into() };
        let text = text_of(&machine(Vec::new(), Some(missing)));
        assert!(text.ends_with("\nno GPU: there is no driver\nhint: install it\n"), "{text}");
    }
}
