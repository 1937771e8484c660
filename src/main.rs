//! The program `streamcast-uring`; everything is in the library.

fn main() -> std::process::ExitCode {
    streamcast_uring::cli::main()
}
