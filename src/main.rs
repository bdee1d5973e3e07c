fn main() -> std::process::ExitCode {
    // Before anything else: the helper must not have a second thread.
    kollage::engine::embedded::helper::main_if_called(std::env::args_os()).unwrap_or_else(kollage::cli::main)
}
