#!/bin/sh
# install.sh PACKAGE.deb...: what the Dockerfiles run in the image: installs the packages with what they need, and leaves out what no program there
# reads. In any other bare Debian or Ubuntu, as root, it does the same: tests/install/image_test.sh runs it in a debootstrap.
set -eu
export DEBIAN_FRONTEND=noninteractive
# The folders that debian:12-slim leaves out, for the packages to come too; copyrights stay.
cat >/etc/dpkg/dpkg.cfg.d/without-documents <<TEXT
path-exclude=/usr/share/doc/*
path-include=/usr/share/doc/*/copyright
path-exclude=/usr/share/info/*
path-exclude=/usr/share/lintian/overrides/*
path-exclude=/usr/share/locale/*
path-include=/usr/share/locale/locale.alias
path-exclude=/usr/share/man/*
TEXT
apt-get update
apt-get install -y --no-install-recommends "$@"
apt-get clean
# What the base had before, and what apt, dpkg and ldconfig make again where it is missing.
find /usr/share/doc /usr/share/info /usr/share/lintian/overrides /usr/share/locale /usr/share/man -mindepth 1 \
    ! -type d ! -name copyright ! -name locale.alias -delete 2>/dev/null || true
find /usr/share/doc /usr/share/info /usr/share/lintian/overrides /usr/share/locale /usr/share/man -mindepth 1 \
    -type d -empty -delete 2>/dev/null || true
rm -rf /var/lib/apt/lists/* /var/cache/apt/*.bin /var/cache/debconf/*-old /var/lib/dpkg/*-old /var/cache/ldconfig/aux-cache
find /var/log -type f -delete
