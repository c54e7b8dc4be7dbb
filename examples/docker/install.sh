#!/bin/sh
# install.sh PACKAGE.deb...: what the Dockerfile runs in the image: installs the packages with what they need, and none of the documents. In another
# bare Debian 12, as root, it makes the same of it: tests/install/docker_image_test.sh runs it in one and weighs that.
set -eu
export DEBIAN_FRONTEND=noninteractive
# What debian:12-slim is without, for the packages to come too; copyrights stay.
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
# What a base had that was not slim.
for folder in doc info lintian/overrides locale man; do
    folder=/usr/share/$folder
    [ -d "$folder" ] || continue
    find "$folder" ! -type d ! -name copyright ! -name locale.alias -delete
    find "$folder" -mindepth 1 -type d -empty -delete
done
# What apt, dpkg and ldconfig make again where it is missing.
rm -rf /var/lib/apt/lists/* /var/cache/apt/*.bin /var/cache/debconf/*-old /var/lib/dpkg/*-old /var/cache/ldconfig/aux-cache
find /var/log -type f -delete
