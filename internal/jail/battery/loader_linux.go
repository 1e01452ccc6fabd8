package battery

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// tryLoader runs the loader. A refusal is one of its messages, or an error of the kernel.
func tryLoader(s *Scene, argv ...string) verdict {
	if s.Loader == "" {
		return heldVerdict("nothing here is linked dynamically")
	}
	out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput()
	switch text := string(out); {
	case strings.Contains(text, "annot") || strings.Contains(text, "failed to map") ||
		strings.Contains(text, "ermission"):
		return heldVerdict("%s", clipText(strings.TrimSpace(text)))
	case err == nil:
		return openVerdict("%v ran", argv)
	default:
		return errorVerdict(err, "")
	}
}

func loaderTmp(s *Scene) verdict {
	if s.Helper == "" {
		return heldVerdict("nothing here is linked dynamically")
	}
	path, err := copyExecutable(s.Helper, s.Tmp)
	if err != nil {
		return oddVerdict("%v", err)
	}
	return tryLoader(s, s.Loader, path)
}

// tryPreload makes the loader of a pinned program load a library from a place.
func tryPreload(s *Scene, variable string) verdict {
	if s.Helper == "" {
		return heldVerdict("nothing here is linked dynamically")
	}
	cmd := exec.Command(s.Helper)
	cmd.Env = append(os.Environ(), variable, "LD_DEBUG=files")
	out, err := cmd.CombinedOutput()
	_, path, _ := strings.Cut(variable, "=")
	switch text := string(out); {
	case strings.Contains(text, "calling init: "+path):
		return openVerdict("%s is in %s", path, s.Helper)
	case strings.Contains(text, "failed to map") || strings.Contains(text, "cannot be"):
		return heldVerdict("it was not mapped")
	case err != nil:
		return errorVerdict(err, "")
	}
	return oddVerdict("the loader said nothing of %s", path)
}

// libraryPath puts a directory with a copy of the C library before those of the host.
func libraryPath(s *Scene) verdict {
	if s.Libc == "" {
		return heldVerdict("nothing here is linked dynamically")
	}
	own, err := copyExecutable(s.Libc, s.Tmp)
	if err != nil {
		return oddVerdict("%v", err)
	}
	named := filepath.Join(s.Tmp, filepath.Base(s.Libc))
	if err := os.Rename(own, named); err != nil {
		return oddVerdict("%v", err)
	}
	defer os.Remove(named)
	cmd := exec.Command(s.Helper)
	cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+s.Tmp)
	if out, err := cmd.CombinedOutput(); err != nil && strings.Contains(string(out), "failed to map") {
		return heldVerdict("%s", clipText(strings.TrimSpace(string(out))))
	} else if err != nil {
		return oddVerdict("%v: %s", err, clipText(string(out)))
	}
	return openVerdict("%s was taken for the C library", named)
}
