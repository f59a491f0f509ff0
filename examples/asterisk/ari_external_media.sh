#!/bin/sh
# Puts a vivavoce gateway into an ARI application as external media, over AudioSocket.
#   ARI=http://user:password@127.0.0.1:8088/ari APP=my_app sh ari_external_media.sh
# The answer is the new channel; add it to the bridge in which the caller is.
set -eu
: "${ARI:?the base of the ARI, with user and password}" "${APP:?the name of the Stasis application}"
curl --fail --silent --show-error --request POST \
    "$ARI/channels/externalMedia" \
    --data app="$APP" \
    --data external_host="${GATEWAY:-127.0.0.1:9092}" \
    --data encapsulation=audiosocket \
    --data transport=tcp \
    --data format=slin \
    --data data="$(cat /proc/sys/kernel/random/uuid)"
