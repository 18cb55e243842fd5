#!/bin/sh
# After the installation of a package: systemd learns of the unit. Nothing is enabled or started, for there is no config yet.
set -e
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
fi
