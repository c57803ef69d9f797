//! The command line: every verb with its options, and nothing that acts.
//!
//! Values leave here checked and in plain types, so that a mistake is a usage error with clap's
//! explanation and the verbs need not check again.

mod address;
mod choice;
mod diff;
mod display;
mod export;
mod info;
mod keep;
mod libs;
mod names;
mod part;
mod processes;
mod quantity;
mod recording;
mod report;
mod selection;
mod stubs;
mod values;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Arg, ArgAction, Args, Command, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

use choice::{TableFormat, TextOrJson};
pub use diff::Diff;
pub use display::{Colour, Display};
pub use export::Export;
pub use info::InfoArgs;
pub use keep::Keep;
pub use libs::Libs;
pub use processes::Processes;
use processes::{Pids, parse_pids};
use quantity::parse_duration;
pub use recording::RecordingArgs;
pub use report::ReportArgs;
pub use selection::{SelectionArgs, read_filter};
pub use stubs::StubsArgs;
pub use values::ValuesArgs;

/// Width of help texts in columns.
const HELP_WIDTH: usize = 100;

/// Trace every call to a library's functions, live, from outside the program
///
/// rtrace places probes on the exported functions of the libraries that you name, in running processes or in a command
/// that it starts. It records every call: the function, the thread, the traced caller, and when the call started and
/// ended. The program is not recompiled or restarted, and nothing is left behind in it.
#[derive(Debug, Parser)]
#[command(name = "rtrace", version, max_term_width = HELP_WIDTH, after_long_help = EXAMPLES)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub verb: Verb,

    /// Verbose output: the causes of an error, all functions of a plan
    #[arg(short, long, global = true, action = ArgAction::SetTrue)]
    pub verbose: bool,

    /// Ignore the configuration file (docs/config.md)
    #[arg(long, global = true, action = ArgAction::SetTrue)]
    pub no_config: bool,
}

/// The command line, as it is read. Two verbs do not need a library: `attach` shows what there is to choose, and `run` without
/// one says what a command takes, for which none of the options that record has a meaning.
pub fn command() -> Command {
    let optional = |verb: Command| verb.mut_arg("libraries", |argument| argument.required(false));
    let needs_library = |argument: Arg| match argument.get_id().as_str() {
        "libraries" | "command" | "user" => argument,
        _ => argument.requires("libraries"),
    };
    Cli::command().mut_subcommand("attach", optional).mut_subcommand("run", |run| optional(run).mut_args(needs_library))
}

const EXAMPLES: &str = "\
EXAMPLES:
    # Show which libraries a running program has, then watch the calls to one
    rtrace libs redis-server
    rtrace attach redis-server --lib libc.so.6

    # Record a command from its first instruction to its exit
    rtrace run --lib libz.so -o out.rtrace -- python3 -m gzip file

    # Show what would be probed, and what each call would cost
    rtrace plan redis-server --lib libc.so.6

    # Show where the time went
    rtrace report out.rtrace --by tree";

/// What rtrace can be asked to do.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Trace running processes
    Attach(Attach),
    /// Run a command and trace it
    Run(Run),
    /// List the libraries of running processes, with functions and call rates
    Libs(Libs),
    /// Show what would be probed, and at what cost, without probing it
    Plan(PlanArgs),
    /// Summarise a trace
    Report(ReportArgs),
    /// Open a trace in the dashboard
    Tui(Tui),
    /// Convert a trace to the format of another tool
    Export(Export),
    /// Compare two traces
    Diff(Diff),
    /// Show what was recorded, and whether it is complete
    Info(InfoArgs),
    /// List the counters that work on this machine
    Counters(CountersArgs),
    /// List the libraries whose arguments and results are known without debug information
    Signatures(SignaturesArgs),
    /// Remove probes left behind by a killed tracer
    Clean(Clean),
    /// Check whether rtrace works here for this user
    Doctor(Doctor),
    /// Print shell completions
    Completions(Completions),
    /// Write manual pages
    #[command(hide = true)]
    Man(Man),
}

/// Reads a command line.
///
/// # Errors
/// It is wrong, or asks for help: clap's explanation.
pub fn read(words: impl IntoIterator<Item = impl Into<OsString> + Clone>) -> Result<Cli, clap::Error> {
    let mut command = command();
    let matches = command.try_get_matches_from_mut(words)?;
    Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
}

/// Options of `rtrace attach`.
#[derive(Debug, Args)]
#[command(after_long_help = ATTACH_EXAMPLES)]
pub struct Attach {
    /// Which processes.
    #[command(flatten)]
    pub processes: Processes,

    /// Which functions.
    #[command(flatten)]
    pub selection: SelectionArgs,

    /// How to record.
    #[command(flatten)]
    pub recording: RecordingArgs,
}

const ATTACH_EXAMPLES: &str = "\
EXAMPLES:
    # Choose the process and its libraries from lists
    rtrace attach

    # Open the dashboard; q or Ctrl-C stops recording
    rtrace attach redis-server --lib libc.so.6

    # Record all nginx processes for two seconds, without the dashboard
    rtrace attach nginx --lib libc.so.6 --duration 2s --no-tui

    # Trace only some functions of a process
    rtrace attach -p 4711 --lib libc.so.6 --func '*printf*' --exclude '/^v/'

    # Wait for a slow call, and save what was called in the 30 s before it
    rtrace attach -p 4711 --lib libsqlite3.so --keep 30s --trigger 'sqlite3_step > 50ms'

    # Let Prometheus scrape latency histograms from http://127.0.0.1:9464/metrics
    rtrace attach -p 4711 --lib libz.so --listen 9464 --no-tui";

/// Options of `rtrace run`.
#[derive(Debug, Args)]
#[command(after_long_help = RUN_EXAMPLES)]
pub struct Run {
    /// Command to run, with its arguments
    #[arg(value_name = "CMD", required = true, trailing_var_arg = true)]
    pub command: Vec<OsString>,

    /// Which functions.
    #[command(flatten)]
    pub selection: SelectionArgs,

    /// Which calls go through stubs.
    #[command(flatten)]
    pub stubs: StubsArgs,

    /// Run the command as this user (needs root)
    ///
    /// The command gets the groups of the user, and its HOME, USER, LOGNAME and SHELL. By default it runs as the same
    /// user as rtrace: `sudo rtrace run` runs it as root, like perf and strace.
    #[arg(long, value_name = "NAME", help_heading = "Command")]
    pub user: Option<String>,

    /// How to record.
    #[command(flatten)]
    pub recording: RecordingArgs,
}

const RUN_EXAMPLES: &str = "\
EXAMPLES:
    # Record a command and its children into a directory of your choice
    rtrace run --lib libz.so -o out.rtrace -- python3 -m gzip file

    # Trace the functions of the program itself
    rtrace run --lib exe -- ./simulation input.dat

    # Avoid single-stepped entry probes, which are expensive
    rtrace run --lib libz.so --stubs -- python3 -m gzip file

    # Trace as root a program that runs as an ordinary user
    sudo rtrace run --user alice --lib libz.so -- python3 -m gzip file

    # See what a command takes, and which library to trace
    rtrace run -- python3 -m gzip file

    # Fail if the trace is incomplete
    rtrace run --lib liblzma.so --strict --buffer 64M -- xz -k file

EXIT STATUS:
    That of the command's first process (128 + signal if a signal ended it); 1 if tracing failed;
    2 for wrong usage; 3 if --strict was given and calls were lost.";

/// Options of `rtrace plan`.
#[derive(Debug, Args)]
#[command(after_long_help = PLAN_EXAMPLES)]
pub struct PlanArgs {
    /// What to examine.
    #[command(flatten)]
    pub target: TargetArgs,

    /// Output format
    #[command(flatten)]
    pub format: TableFormat,

    /// Sample for TIME in which functions CPU time is spent; places no probes
    #[arg(long, value_name = "TIME", value_parser = parse_duration, conflicts_with_all = ["command", "stubs"])]
    pub sample: Option<Duration>,

    /// Which functions.
    #[command(flatten)]
    pub selection: SelectionArgs,

    /// Which values of calls; they are listed instead of costs.
    #[command(flatten)]
    pub values: ValuesArgs,

    /// Which calls of `run` would go through stubs.
    #[command(flatten)]
    pub stubs: StubsArgs,
}

/// Running processes, or a command that is not run.
#[derive(Debug, Args)]
pub struct TargetArgs {
    /// Which processes.
    #[command(flatten)]
    pub processes: Processes,

    /// Command whose libraries to examine; rtrace does not run it
    #[arg(
        value_name = "CMD",
        last = true,
        conflicts_with_all = ["names", "named", "pids"],
        required_unless_present_any = ["names", "named", "pids"]
    )]
    pub command: Vec<OsString>,
}

const PLAN_EXAMPLES: &str = "\
EXAMPLES:
    # Show what `rtrace attach` would probe
    rtrace plan redis-server --lib libc.so.6

    # Show all functions of a library that a command uses, not only the first 20
    rtrace plan --verbose --lib libz.so -- python3

    # Sample for a second, and list first the functions in which CPU time is spent
    rtrace plan redis-server --lib libc.so.6 --sample 1s

    # Write the plan for a script
    rtrace plan -p 4711 --lib exe --format csv >plan.csv";

/// Options of `rtrace clean`.
#[derive(Debug, Args)]
#[command(after_long_help = CLEAN_EXAMPLES)]
pub struct Clean {
    /// Process to examine; a list, or repeated [default: all]
    #[arg(short = 'p', long = "pid", value_name = "PID", num_args = 1.., value_parser = parse_pids)]
    pids: Vec<Pids>,
    /// Remove all unused probes without asking
    #[arg(short, long)]
    pub yes: bool,
}

impl Clean {
    /// The processes to examine; none stands for all.
    pub fn pids(&self) -> Vec<u32> {
        self.pids.iter().flat_map(|pids| &pids.0).copied().collect()
    }
}

const CLEAN_EXAMPLES: &str = "\
A tracer that is killed while it attaches or detaches may leave breakpoints in the traced program.
The program still runs correctly, but each breakpoint costs time. rtrace keeps breakpoints that a
tracer uses. It asks before it removes breakpoints that may belong to the program or to a debugger,
and before it removes breakpoints from all processes.

EXAMPLES:
    # Clean up one process after `kill -9` of rtrace
    rtrace clean -p 4711

    # Clean up all processes; asks first
    rtrace clean";

/// Options of `rtrace counters`.
#[derive(Debug, Args)]
#[command(after_long_help = COUNTERS_EXAMPLES)]
pub struct CountersArgs {
    /// Also list the counters that do not work, with the reason
    #[arg(long)]
    pub all: bool,
}

const COUNTERS_EXAMPLES: &str = "\
EXAMPLES:
    # List the counters that work here
    rtrace counters

    # Show why the others do not
    rtrace counters --all

    # Read two counters on every call
    rtrace run --lib libz.so --counters task-clock,page-faults -- python3 -m gzip file";

/// Options of `rtrace signatures`.
#[derive(Debug, Args)]
#[command(after_long_help = SIGNATURES_EXAMPLES)]
pub struct SignaturesArgs {
    /// List the functions of tables whose libraries or file names contain this
    #[arg(value_name = "LIB")]
    pub libraries: Vec<String>,

    /// Output format
    #[command(flatten)]
    pub format: TextOrJson,
}

const SIGNATURES_EXAMPLES: &str = "\
Tables say which parameters functions have. `--args` takes them from --args-from FILE, then from
/etc/rtrace/signatures/*.toml, from the built-in tables, and from debug information.

EXAMPLES:
    # List the tables, with the version of the library that each was made of
    rtrace signatures

    # List the functions of one
    rtrace signatures libmpi";

/// Options of `rtrace tui`.
#[derive(Debug, Args)]
#[command(after_long_help = TUI_EXAMPLES)]
pub struct Tui {
    /// Trace directory, or directory of a job, finished or still being recorded
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
}

const TUI_EXAMPLES: &str = "\
EXAMPLES:
    # Open a stored trace; < > [ ] select a part of its time
    rtrace tui out.rtrace";

/// Options of `rtrace doctor`.
#[derive(Debug, Args)]
#[command(after_long_help = DOCTOR_EXAMPLES)]
pub struct Doctor {
    /// Measure what this machine can do at most: operations and memory, of one CPU and of all
    ///
    /// It takes a few seconds in which all CPUs are busy. `rtrace report --html FILE --peaks PEAKS` draws a roofline from
    /// the JSON.
    #[arg(long)]
    pub peaks: bool,

    /// Output format
    #[command(flatten)]
    pub format: TextOrJson,
}

const DOCTOR_EXAMPLES: &str = "\
EXAMPLES:
    # Show what works here, what does not, and how to fix it
    rtrace doctor

    # In a script: status 0 means that rtrace works here
    rtrace doctor --json >doctor.json || echo 'cannot trace'

    # How fast is this machine? Show traced calls against that
    rtrace doctor --peaks --json >peaks.json
    rtrace report out.rtrace --html out.html --peaks peaks.json";

/// Options of `rtrace completions`.
#[derive(Debug, Args)]
#[command(after_long_help = COMPLETIONS_EXAMPLES)]
pub struct Completions {
    /// Shell to generate completions for
    #[arg(value_name = "SHELL")]
    pub shell: clap_complete::Shell,
}

/// Options of `rtrace man`.
#[derive(Debug, Args)]
pub struct Man {
    /// Folder to write the pages to; created if missing
    #[arg(value_name = "FOLDER")]
    pub folder: PathBuf,
}

const COMPLETIONS_EXAMPLES: &str = "\
EXAMPLES:
    # For the current bash session
    source <(rtrace completions bash)

    # For all fish sessions
    rtrace completions fish >~/.config/fish/completions/rtrace.fish";

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::time::Duration;

    use clap::error::ErrorKind;
    use rtrace_model::ExitPolicy;

    use super::*;

    fn parse(line: &str) -> Result<Verb, clap::Error> {
        read(line.split(' ')).map(|cli| cli.verb)
    }

    fn refusal(line: &str) -> ErrorKind {
        parse(line).unwrap_err().kind()
    }

    #[test]
    fn the_definition_is_consistent() {
        command().debug_assert();
    }

    #[test]
    fn help_names_every_verb() {
        let help = command().term_width(HELP_WIDTH).render_help().to_string();
        assert_eq!(
            help,
            "\
Trace every call to a library's functions, live, from outside the program

Usage: rtrace [OPTIONS] <COMMAND>

Commands:
  attach       Trace running processes
  run          Run a command and trace it
  libs         List the libraries of running processes, with functions and call rates
  plan         Show what would be probed, and at what cost, without probing it
  report       Summarise a trace
  tui          Open a trace in the dashboard
  export       Convert a trace to the format of another tool
  diff         Compare two traces
  info         Show what was recorded, and whether it is complete
  counters     List the counters that work on this machine
  signatures   List the libraries whose arguments and results are known without debug information
  clean        Remove probes left behind by a killed tracer
  doctor       Check whether rtrace works here for this user
  completions  Print shell completions
  help         Print this message or the help of the given subcommand(s)

Options:
  -v, --verbose    Verbose output: the causes of an error, all functions of a plan
      --no-config  Ignore the configuration file (docs/config.md)
  -h, --help       Print help (see more with '--help')
  -V, --version    Print version
"
        );
    }

    #[test]
    fn every_help_has_examples_and_fits_its_width() {
        for mut verb in command().term_width(HELP_WIDTH).get_subcommands().filter(|verb| !verb.is_hide_set()).cloned() {
            let help = verb.render_long_help().to_string();
            assert!(help.contains("EXAMPLES:"), "{}", verb.get_name());
            let longest = help.lines().map(|line| line.chars().count()).max();
            assert!(longest <= Some(HELP_WIDTH), "{}: {longest:?} columns", verb.get_name());
        }
    }

    #[test]
    fn the_examples_are_commands_that_parse() {
        let texts = [
            EXAMPLES,
            ATTACH_EXAMPLES,
            RUN_EXAMPLES,
            libs::EXAMPLES,
            PLAN_EXAMPLES,
            report::EXAMPLES,
            export::EXAMPLES,
            diff::EXAMPLES,
            info::EXAMPLES,
            TUI_EXAMPLES,
            CLEAN_EXAMPLES,
            COUNTERS_EXAMPLES,
            SIGNATURES_EXAMPLES,
            DOCTOR_EXAMPLES,
            COMPLETIONS_EXAMPLES,
        ];
        let commands = texts.into_iter().flat_map(str::lines).map(str::trim).filter(|line| line.starts_with("rtrace "));
        let mut seen = 0;
        for command in commands {
            let command = command.split(" >").next().unwrap().split(" |").next().unwrap().replace('\'', "");
            assert!(parse(&command).is_ok(), "{command}: {}", parse(&command).unwrap_err());
            seen += 1;
        }
        assert!(seen >= 15, "{seen}");
    }

    #[test]
    fn attach_takes_several_processes_and_libraries() {
        let Verb::Attach(attach) = parse("rtrace attach -p 1 2 -p 3,4 -l libz.so --lib exe --duration 2s").unwrap()
        else {
            panic!("another verb");
        };
        assert_eq!(attach.processes.pids(), [1, 2, 3, 4]);
        let options = attach.recording.options(&attach.selection, false, None).unwrap();
        assert_eq!(options.libraries, ["libz.so", "exe"]);
        assert_eq!(options.plan.exit, ExitPolicy::ReturnSite);
        assert_eq!(options.duration, Some(Duration::from_secs(2)));
        assert_eq!(options.ring_bytes, Some(8 << 20));
        assert!(options.samples && !options.follow);
    }

    #[test]
    fn run_leaves_the_options_of_its_command_alone() {
        for line in ["rtrace run -l libz.so -- gzip -9 --lib x", "rtrace run -l libz.so gzip -9 --lib x"] {
            let Verb::Run(run) = parse(line).unwrap() else { panic!("another verb") };
            assert_eq!(run.command, ["gzip", "-9", "--lib", "x"]);
            let options = run.recording.options(&run.selection, true, None).unwrap();
            assert_eq!(options.libraries, ["libz.so"]);
            assert!(options.follow);
        }
    }

    #[test]
    fn the_last_word_on_following_counts() {
        let follow = |options: &str, default| {
            let Verb::Run(run) = parse(&format!("rtrace run -l z{options} -- true")).unwrap() else {
                panic!("another verb")
            };
            run.recording.options(&run.selection, default, None).unwrap().follow
        };
        assert!(!follow(" --no-follow", true));
        assert!(follow(" --follow", false));
        assert!(!follow(" --follow --no-follow", false));
        assert!(follow(" --no-follow --follow", false));
    }

    #[test]
    fn exit_policies_have_the_names_of_the_model() {
        for policy in ExitPolicy::ALL {
            let Verb::Plan(plan) = parse(&format!("rtrace plan -p 1 -l z --exit {}", policy.name())).unwrap() else {
                panic!("another verb");
            };
            assert_eq!(plan.selection.options().unwrap().plan.exit, policy);
        }
    }

    #[test]
    fn calls_are_folded_where_that_is_asked_for() {
        let written_from = |options: &str| {
            let Verb::Attach(attach) = parse(&format!("rtrace attach -p 1 -l z{options}")).unwrap() else {
                panic!("another verb");
            };
            let options = attach.recording.options(&attach.selection, false, None).unwrap();
            options.profile.map(|profile| (profile.written_from, profile.max_paths))
        };
        assert_eq!(written_from(""), None);
        assert_eq!(written_from(" --mode profile --max-paths 9"), Some((None, 9)));
        assert_eq!(written_from(" --min-duration 3us"), Some((Some(3_000), 1 << 16)));
        let both = "rtrace attach -p 1 -l z --mode profile --min-duration 1s";
        assert_eq!(refusal(both), ErrorKind::ArgumentConflict);
    }

    #[test]
    fn report_shows_functions_by_exclusive_time_unless_told() {
        use rtrace_report::{By, Format, Look, Options, Sort};
        let options = |line: &str| {
            let Verb::Report(report) = parse(line).unwrap() else { panic!("another verb") };
            report.options(Look::default())
        };
        assert_eq!(options("rtrace report out.rtrace"), Options::default());
        assert_eq!(
            options("rtrace report out.rtrace --by tree --sort calls --limit 3 --format json"),
            Options { by: By::Tree, sort: Sort::Calls, limit: Some(3), format: Format::Json, ..Options::default() }
        );
    }

    #[test]
    fn report_shows_arguments_by_name() {
        use rtrace_report::{By, Histogram, Look};
        let options = |line: &str| {
            let Verb::Report(report) = parse(line).unwrap() else { panic!("another verb") };
            report.options(Look::default())
        };
        assert_eq!(options("rtrace report out.rtrace --by arg:a->b").by, By::Value("a->b".to_owned()));
        assert_eq!(
            options("rtrace report --histogram arg:n out.rtrace").histogram,
            Some(Histogram::Value("n".to_owned()))
        );
        for line in ["--histogram", "--histogram --limit 3", "--histogram durations"] {
            assert_eq!(
                options(&format!("rtrace report out.rtrace {line}")).histogram,
                Some(Histogram::Durations),
                "{line}"
            );
        }
        for wrong in ["--by arg:", "--by args:n", "--histogram n", "--histogram arg:"] {
            assert_eq!(refusal(&format!("rtrace report out.rtrace {wrong}")), ErrorKind::InvalidValue, "{wrong}");
        }
    }

    #[test]
    fn wrong_usage_is_refused() {
        assert!(parse("rtrace attach -p 1").is_ok() && parse("rtrace attach -l z").is_ok(), "it shows what there is");
        assert_eq!(refusal("rtrace plan -p 1"), ErrorKind::MissingRequiredArgument);
        assert_eq!(refusal("rtrace plan x -l z -- ls"), ErrorKind::ArgumentConflict);
        assert_eq!(refusal("rtrace plan -l z --sample 1s -- ls"), ErrorKind::ArgumentConflict);
        assert_eq!(refusal("rtrace attach -p nginx -l z"), ErrorKind::ValueValidation);
        assert_eq!(refusal("rtrace run -l z"), ErrorKind::MissingRequiredArgument);
        // An option that does not exist is no command; those of the command are its own.
        assert_eq!(refusal("rtrace run -l z --fnuc f -- ls"), ErrorKind::UnknownArgument);
        for line in ["rtrace run -l z ls -l --fnuc", "rtrace run -l z -- ls -l --fnuc"] {
            let Ok(Cli { verb: Verb::Run(run), .. }) = read(line.split(' ')) else { panic!("{line}") };
            assert_eq!(run.command, ["ls", "-l", "--fnuc"], "{line}");
        }
        assert_eq!(refusal("rtrace plan -l z"), ErrorKind::MissingRequiredArgument);
        assert_eq!(refusal("rtrace plan -l z -p 1 -- ls"), ErrorKind::ArgumentConflict);
        assert_eq!(refusal("rtrace attach -p -1 -l z"), ErrorKind::UnknownArgument);
        assert_eq!(refusal("rtrace attach -p 1 -l z --func /(/"), ErrorKind::ValueValidation);
        assert_eq!(refusal("rtrace attach -p 1 -l z --exit maybe"), ErrorKind::InvalidValue);
        assert_eq!(refusal("rtrace"), ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand);
    }
}
