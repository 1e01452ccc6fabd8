package battery

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// loaded runs the loader. A refusal is one of its messages, or an error of the kernel.
func loaded(s *Scene, argv ...string) verdict {
	if s.Loader == "" {
		return held("nothing here is linked dynamically")
	}
	out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput()
	switch text := string(out); {
	case strings.Contains(text, "annot") || strings.Contains(text, "failed to map") || strings.Contains(text, "ermission"):
		return held("%s", clip(strings.TrimSpace(text)))
	case err == nil:
		return opened("%v ran", argv)
	default:
		return refused(err, "")
	}
}

func loaderTmp(s *Scene) verdict {
	if s.Helper == "" {
		return held("nothing here is linked dynamically")
	}
	path, err := duplicate(s.Helper, s.Tmp)
	if err != nil {
		return odd("%v", err)
	}
	return loaded(s, s.Loader, path)
}

// preloaded makes the loader of a pinned program load a library from a place.
func preloaded(s *Scene, variable string) verdict {
	if s.Helper == "" {
		return held("nothing here is linked dynamically")
	}
	cmd := exec.Command(s.Helper)
	cmd.Env = append(os.Environ(), variable, "LD_DEBUG=files")
	out, err := cmd.CombinedOutput()
	_, path, _ := strings.Cut(variable, "=")
	switch text := string(out); {
	case strings.Contains(text, "calling init: "+path):
		return opened("%s is in %s", path, s.Helper)
	case strings.Contains(text, "failed to map") || strings.Contains(text, "cannot be"):
		return held("it was not mapped")
	case err != nil:
		return refused(err, "")
	}
	return odd("the loader said nothing of %s", path)
}

// libraryPath puts a directory with a copy of the C library before those of the host.
func libraryPath(s *Scene) verdict {
	if s.Libc == "" {
		return held("nothing here is linked dynamically")
	}
	own, err := duplicate(s.Libc, s.Tmp)
	if err != nil {
		return odd("%v", err)
	}
	named := filepath.Join(s.Tmp, filepath.Base(s.Libc))
	if err := os.Rename(own, named); err != nil {
		return odd("%v", err)
	}
	defer os.Remove(named)
	cmd := exec.Command(s.Helper)
	cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+s.Tmp)
	if out, err := cmd.CombinedOutput(); err != nil && strings.Contains(string(out), "failed to map") {
		return held("%s", clip(strings.TrimSpace(string(out))))
	} else if err != nil {
		return odd("%v: %s", err, clip(string(out)))
	}
	return opened("%s was taken for the C library", named)
}
