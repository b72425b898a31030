# `make dist`: a tarball with the program, for machines without Rust. `make test`: all that must hold.

VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
HOST := $(shell rustc -vV | sed -n 's/^host: //p')
NAME := sweeper-$(VERSION)-$(HOST)
PROGRAM := target/release/sweeper
# Ubuntu 22.04's; Debian 12 has a newer one.
GLIBC := 2.35

.PHONY: dist test

dist:
	cargo build --release --locked --features parquet
	@newest=$$(objdump -T $(PROGRAM) | grep -o 'GLIBC_[0-9.]*' | sort -Vu | tail -n 1); \
	if [ "$$(printf '%s\nGLIBC_$(GLIBC)\n' "$$newest" | sort -V | tail -n 1)" != GLIBC_$(GLIBC) ]; then \
	    echo "the program needs $$newest, and Ubuntu 22.04 has GLIBC_$(GLIBC): build it on an older system" >&2; \
	    exit 1; \
	fi
	rm -rf target/dist/$(NAME)
	mkdir -p target/dist/$(NAME)
	strip -o target/dist/$(NAME)/sweeper $(PROGRAM)
	cp -r README.md CHANGELOG.md LICENSE-MIT LICENSE-APACHE manifests target/dist/$(NAME)
	tar -C target/dist -czf target/dist/$(NAME).tar.gz $(NAME)
	@echo target/dist/$(NAME).tar.gz

test:
	.ci/run
