//! `rtrace plan`: what would be probed, without probing; with `--sample`, which of that uses CPU time; with `--args`,
//! which values of calls are known.

use super::args::PlanArgs;
use std::io::{BufWriter, Write as _, stdout};
use std::panic::resume_unwind;
use std::sync::atomic::AtomicBool;
use std::thread;

use anyhow::Context as _;
use rtrace::record::signatures;
use rtrace::sampling;
use rtrace::session::{self, Options, TracedProgram};
use rtrace::stubs::{self, NoStubs};
use rtrace::suggestions;
use rtrace::target::source_files;
use rtrace_model::RegionId;
use rtrace_plan as plan;
use rtrace_signatures::{Book, Request};

use super::message::tell;
use super::plan_table::{self, PlanCosts, View};
use super::{Outcome, plan_values, processes, record, terminal_columns};

/// Prints the plan.
pub fn plan(options: &PlanArgs, verbose: bool) -> anyhow::Result<Outcome> {
    let chosen = processes::find(&options.target.processes)?;
    let pids = chosen.as_slice();
    let (program, how) = match pids {
        [] => {
            (TracedProgram::Command(&options.target.command), Options { follow: true, ..options.selection.options()? })
        }
        pids => (TracedProgram::Running(pids), options.selection.options()?),
    };
    let stubs = may_have_stubs(options);
    let request = options.values.request().map(|request| Request { stubs, ..request });
    let book = request.as_ref().map(Book::open).transpose()?;
    let mut target = program.target(&how)?;
    let mechanism = session::mechanism().ok();
    let plan_options = plan::PlanOptions { stubs, ..session::plan_options(&how, mechanism, program) };
    record::say_unknown_sources(&source_files::read(&mut target.libraries, &plan_options)?);
    suggestions::check(&target, &plan_options)?.iter().for_each(|remark| tell!("{remark}"));
    if let Some(book) = &book {
        let callers = signatures::callers(pids, &target.files);
        signatures::capture(book, &mut target.libraries, &plan_options, &callers)?;
    }
    let steps = plan_options.emulated.steps;
    let (plan, costs) = thread::scope(|scope| {
        let costs = scope.spawn(|| PlanCosts::here(mechanism, steps));
        (
            plan::plan(&target.libraries, &plan_options, RegionId(0)),
            costs.join().unwrap_or_else(|panic| resume_unwind(panic)),
        )
    });
    if let Some(book) = book {
        return plan_values::print(&book, &target, &plan, pids, options.format.chosen(), verbose);
    }
    let sample = |duration| sampling::sample(pids, duration, &AtomicBool::new(false));
    let sampled = options.sample.map(sample).transpose()?;
    let view = View {
        format: options.format.chosen(),
        verbose,
        width: terminal_columns(),
        sampled: sampled.as_ref(),
        costs: &costs,
    };
    let mut output = BufWriter::new(stdout().lock());
    plan_table::render(&plan, view, &mut output)
        .and_then(|()| output.flush())
        .context("failed to write to standard output")?;
    // Of a library that is found only when a program loads it, nothing is planned.
    Ok(if target.awaited.is_empty() { Outcome::Complete } else { Outcome::Unable })
}

/// Whether the command can have the stubs that are asked for; says why not.
fn may_have_stubs(options: &PlanArgs) -> bool {
    let checked = options.stubs.stubs.then(|| stubs::check(&options.target.command).map_err(NoStubs::from));
    if let Some(Err(reason)) = &checked {
        tell!("{reason}");
    }
    matches!(checked, Some(Ok(())))
}
