#!/bin/sh
echo "Hello from $(id -un)."
