# SPDX-License-Identifier: GPL-2.0-or-later
#
# The entry points. Everything that they make lives in build/.

BASE ?= v11.0
export BASE QEMU_SRC

# What there are guests for, as in tools/polltools/arch.py.
ARCHES := x86_64 s390x
MACHINE := $(shell uname -m)
OWN_ARCH = $(or $(ARCH),$(MACHINE))
# Of the base that tools/choose-base has found; it is a shell variable there.
QEMU = build/$$BASE/obj/qemu-system-$(OWN_ARCH)
STOCK_QEMU = build/$$BASE/obj-stock/qemu-system-$(OWN_ARCH)
# A base that the user names is not replaced by another one.
CHOOSE = tools/choose-base $(if $(filter file,$(origin BASE)),--or-fallback)

# In a recipe, before anything is installed or built: refuse an architecture.
check_arch = $(if $(or $(filter-out $(ARCHES),$(1)),$(word 2,$(1))),\
	$(error ARCH=$(1) is not known; it is one of: $(ARCHES)))
arch_option = $(if $(ARCH),--arch $(ARCH))

.PHONY: help demo test qemu lab bench fio deb checkout export check compare clean

help:
	@echo 'make demo      boot a guest with poll-weight=3 and measure (STOCK=1: compare)'
	@echo 'make test      build everything and run all tests'
	@echo 'make qemu      build QEMU with the series (STOCK=1: without it)'
	@echo '               these three: ARCH=s390x or ARCH=x86_64 for such guests'
	@echo 'make lab       compare stock, series and QEMU 11.1 in virtual time'
	@echo '               (CHECK=1: with the committed figures, write nothing)'
	@echo 'make bench     the same in real time; needs two idle CPUs for some minutes'
	@echo 'make fio       fio in guests of several QEMUs, with a report; MATRIX=quick,'
	@echo '               published or a file; QEMU_A= QEMU_B= (default: stock and'
	@echo '               series, built); DRY=1: print the plan'
	@echo 'make deb       Debian source package with the series; BASE=v10.0 has one'
	@echo '               (BINARY=1: build the packages, too; SYSTEMS=x86,s390x)'
	@echo 'make checkout  git tree to work in: build/$(BASE)/src'
	@echo 'make export    write the commits of that tree to patches/$(BASE)/'
	@echo 'make check     check the series patch by patch (FULL=1: thoroughly)'
	@echo 'make compare   how the series of BASE differs from that of v11.0'
	@echo 'make clean     remove what was built, keep downloads and compiler cache'
	@echo 'make help      this list'
	@echo
	@echo 'BASE=$(BASE) names a file in bases/. QEMU_SRC= names a QEMU source of'
	@echo 'your own: a directory, a git clone or an archive. What is missing on'
	@echo 'the machine is installed first (Debian) or listed.'

demo:
	$(call check_arch,$(OWN_ARCH))
	@tools/deps build guest
	@BASE=$$($(CHOOSE) $(BASE)) && tools/build $(arch_option) $$BASE \
		$(if $(STOCK),&& tools/build --stock $(arch_option) $$BASE) && \
		PYTHONPATH=build/$$BASE/src/python tools/demo --qemu $(QEMU) \
		$(if $(STOCK),--stock $(STOCK_QEMU))

test:
	$(call check_arch,$(ARCH))
	@tools/deps build guest fio hosts plots \
		$(if $(shell command -v apt-get),deb)
	@BASE=$$($(CHOOSE) $(BASE)) || BASE=$(BASE); \
		tools/test $(arch_option) $$BASE

qemu:
	$(call check_arch,$(ARCH))
	@tools/deps build
	@tools/build $(if $(STOCK),--stock) $(arch_option) $(BASE)

lab:
	@tools/deps build $(if $(CHECK),,$(if $(filter v11.0,$(BASE)),plots))
	@tools/lab $(if $(CHECK),--check --bars)

bench:
	@tools/deps build
	@tools/bench

deb:
	@tools/deps build deb $(if $(BINARY),guest)
	@tools/deb $(if $(SUFFIX),--suffix $(SUFFIX)) $(if $(BINARY),--binary) \
		$(if $(SYSTEMS),--systems $(SYSTEMS)) $(BASE)

# QEMU_A, QEMU_B: emulators; without them stock and series are built.  WORK=
# is where disks are made, DISKS= names devices instead.
MATRIX ?= quick
FIO = PYTHONPATH=build/$(BASE)/src/python tools/fio --matrix $(MATRIX) \
	$(if $(OUT),--out $(OUT)) $(foreach one,$(ONLY),--only '$(one)') \
	$(if $(ROUNDS),--rounds $(ROUNDS))

fio:
ifdef DRY
	@$(FIO) --dry-run
else
	@tools/deps build guest fio plots
	@$(if $(QEMU_A)$(QEMU_B),tools/checkout $(BASE), \
		tools/build $(BASE) && tools/build --stock $(BASE))
	@$(FIO) $(if $(QEMU_A)$(QEMU_B), \
		$(addprefix --qemu-a ,$(QEMU_A)) $(addprefix --qemu-b ,$(QEMU_B)), \
		--qemu-a $(STOCK_QEMU) --qemu-b $(QEMU)) \
		$(if $(WORK),--work $(WORK)) $(addprefix --disk ,$(DISKS)) $(ARGS)
endif

checkout:
	@tools/deps build
	@tools/checkout $(BASE)

export:
	@tools/deps build
	@tools/export $(BASE)

check:
	@tools/deps build
	@tools/test $(if $(FULL),--full) --check $(BASE)

compare:
	@tools/deps build
	@tools/compare $(BASE)

clean:
	@tools/clean $(BASE)
