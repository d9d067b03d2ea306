// Command image writes the OCI archive of an image with one layer: static programs in its root, and nothing else.
//
// Two images of the same programs have the same digest: all times are the given one, and all owners root.
package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// user is "nonroot" by custom. As a number, so that runAsNonRoot can be checked without an /etc/passwd.
const user = "65532:65532"

// facts are annotations of the manifest, and labels of the configuration.
type facts map[string]string

func (f facts) String() string { return "" }

func (f facts) Set(text string) error {
	name, value, ok := strings.Cut(text, "=")
	if !ok {
		return errors.New("expected NAME=VALUE")
	}
	f[name] = value
	return nil
}

func main() {
	known := facts{}
	archive := flag.String("archive", "", "the `FILE` to be written")
	name := flag.String("name", "", "the `IMAGE:TAG` that the archive's index names")
	arch := flag.String("arch", "", "the programs' `ARCHITECTURE`, such as amd64")
	seconds := flag.Int64("created", 0, "all times, in `SECONDS` since 1970")
	flag.Var(known, "fact", "an annotation, which is a label as well, as `NAME=VALUE`; can be repeated")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: image [OPTION]... PROGRAM...\n\nThe first program is the entrypoint.")
		flag.PrintDefaults()
	}
	flag.Parse()
	if *archive == "" || *name == "" || *arch == "" || flag.NArg() == 0 {
		flag.Usage()
		os.Exit(2)
	}
	created := time.Unix(*seconds, 0).UTC()
	digest, err := write(*archive, *name, *arch, created, known, flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
	fmt.Println(digest)
}

// write writes the archive, and returns the digest of its manifest.
func write(archive, name, arch string, created time.Time, known facts, programs []string) (string, error) {
	image, err := build(arch, created, known, programs)
	if err != nil {
		return "", err
	}
	directory, err := os.MkdirTemp("", "image-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(directory)
	path, err := layout.Write(directory, empty.Index)
	if err != nil {
		return "", err
	}
	named := layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": name})
	if err := path.AppendImage(image, named); err != nil {
		return "", err
	}
	if err := pack(directory, archive, created); err != nil {
		return "", err
	}
	digest, err := image.Digest()
	return digest.String(), err
}

func build(arch string, created time.Time, known facts, programs []string) (v1.Image, error) {
	content, err := layer(created, programs)
	if err != nil {
		return nil, err
	}
	opener := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil }
	root, err := tarball.LayerFromOpener(opener, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	names := make([]string, len(programs))
	for i, program := range programs {
		names[i] = filepath.Base(program)
	}
	history := v1.History{Created: v1.Time{Time: created}, CreatedBy: "COPY " + strings.Join(names, " ") + " /"}
	image, err = mutate.Append(image, mutate.Addendum{Layer: root, History: history})
	if err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.Architecture, config.OS, config.Created = arch, "linux", v1.Time{Time: created}
	config.Config = v1.Config{User: user, Entrypoint: []string{"/" + names[0]}, Labels: known}
	image, err = mutate.ConfigFile(image, config)
	if err != nil {
		return nil, err
	}
	return mutate.Annotations(image, known).(v1.Image), nil
}

// layer is an archive of the programs.
func layer(created time.Time, programs []string) ([]byte, error) {
	var content bytes.Buffer
	writer := tar.NewWriter(&content)
	for _, program := range programs {
		if err := add(writer, program, filepath.Base(program), 0o755, created); err != nil {
			return nil, err
		}
	}
	if err := writer.Close(); err != nil {
		return nil, err
	}
	return content.Bytes(), nil
}

// pack writes an archive of the files in a directory.
func pack(directory, archive string, created time.Time) error {
	file, err := os.Create(archive)
	if err != nil {
		return err
	}
	defer file.Close()
	writer := tar.NewWriter(file)
	err = filepath.WalkDir(directory, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name, err := filepath.Rel(directory, path)
		if err != nil {
			return err
		}
		return add(writer, path, name, 0o644, created)
	})
	if err != nil {
		return err
	}
	if err := writer.Close(); err != nil {
		return err
	}
	return file.Close()
}

func add(writer *tar.Writer, path, name string, mode int64, modified time.Time) error {
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	header := &tar.Header{
		Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: int64(len(content)), ModTime: modified, Format: tar.FormatPAX,
	}
	if err := writer.WriteHeader(header); err != nil {
		return err
	}
	_, err = writer.Write(content)
	return err
}
