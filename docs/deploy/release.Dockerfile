# The image of a release: the binary that was built already, the certificates to check TLS with, and nothing else.
# goreleaser builds it for each platform, and `make image` for this one; Dockerfile beside this builds from the source.
FROM scratch
ARG TARGETPLATFORM
COPY bin/extras/ca-certificates.crt /etc/ssl/certs/
COPY $TARGETPLATFORM/firstseen /firstseen
USER 65532:65532
EXPOSE 8080
STOPSIGNAL SIGTERM
ENTRYPOINT ["/firstseen"]
CMD ["run", "--config", "/etc/firstseen/firstseen.yaml"]
