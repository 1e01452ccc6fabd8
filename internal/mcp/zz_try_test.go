package mcp
import ("time";"bailey";"testing";"os";"context")
type stdio struct{}
func (stdio) Read(p []byte)(int,error){return os.Stdin.Read(p)}
func (stdio) Write(p []byte)(int,error){return os.Stdout.Write(p)}
func (stdio) Close() error {os.Stdin.Close(); return os.Stdout.Close()}
func TestZZTry(t *testing.T){ if os.Getenv("MCP_TRY")=="" {t.Skip()}; 
 g:=yard(); g.do["git.branch-list"]=func(context.Context, bailey.Call) bailey.Result { return bailey.Result{Receipt:"r-f",Status:bailey.Failed,Executed:true,ExitCode:128,Stdout:[]byte("some out\n"),Stderr:[]byte("fatal: not a repo\n"),Err:&bailey.Error{Kind:bailey.ToolFailed,Message:"the tool ended with exit code 128"}} }; if os.Getenv("MCP_SLEEP")!="" { time.Sleep(0) }
 Serve(context.Background(), config(g), stdio{}); os.Exit(0)}
