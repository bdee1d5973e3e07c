use kollage_start::environment::Environment;
use std::process::ExitCode;

fn main() -> ExitCode {
    match kollage_start::cli::run(std::env::args_os(), &Environment::read()) {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            for problem in &failure.problems {
                kollage_start::log::error(problem);
            }
            ExitCode::from(failure.code)
        }
    }
}
