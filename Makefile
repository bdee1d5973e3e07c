# The two commands of the README, and the pieces that they are made of.

PROFILE ?= demo
OUTPUT  ?= build/$(PROFILE)
KOLLAGE := $(or $(CARGO_TARGET_DIR),target)/release/kollage

.PHONY: demo test build lint unit fuzz clean

## Build Kollage and with it the profile `demo`, show the result and what to do next.
demo:
	@tools/install-deps demo
	@cargo build --release --locked --bin kollage
	@mkdir -p $(dir $(OUTPUT))
	$(KOLLAGE) build --profile $(PROFILE) -o type=oci,dest=$(OUTPUT)
	@tools/show-demo $(KOLLAGE) $(OUTPUT)

## Everything that CI runs: form, lints, and all tests, those on real packages, registries and daemons included.
test:
	@tools/install-deps test
	@$(MAKE) --no-print-directory lint
	@$(MAKE) --no-print-directory unit

build:
	cargo build --release --locked

lint:
	cargo fmt --all --check
	cargo clippy --locked --all-targets -- -D warnings

unit:
	tools/test

## Fuzzes every target for a minute each (`FUZZ_SECONDS=1200` for longer); finds are in fuzz/artifacts.
fuzz:
	tools/fuzz $(or $(FUZZ_SECONDS),60)

clean:
	cargo clean
	rm -rf build
